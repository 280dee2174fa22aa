"""The loss over batch size × learning rate, as a heat map with numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, Cell, Inferred
from batchlab.core.format import format_learning_rate, format_loss
from batchlab.core.record import Outcome
from batchlab.report.figures.figure import Figure, Trace, axis, layout, lines, missing
from batchlab.report.tables import cell_key
from batchlab.words.figures import surface as words
from batchlab.words.figures.loss import NO_RUNS
from batchlab.words.units import Units

_FAILED = (
    (Outcome.DIVERGED, "x", "@bad"),
    (Outcome.OUT_OF_MEMORY, "square-x-open", "@warn"),
    (Outcome.FAILED, "hash-open", "@bad"),
)

MOST_LINES = 24
"""Learning rates up to which cells have room for numbers; beyond that, lines are thin and the shape is what shows."""

LINE, THIN_LINE, TALLEST = 38, 8, 456
"""Heights in pixels."""


def surface(findings: Findings) -> Figure:
    """Every cell's mean loss, failures, each size's best cell, the cells tied with the best, and, paler, the losses
    inferred for cells that were not run."""
    key, title = "surface", words.TITLE
    rows = sorted(findings.surface.rows, key=lambda r: r.global_batch_size) if findings.surface else []
    cells = [cell for row in rows for cell in row.cells]
    if not cells or findings.surface is None:
        return missing(key, title, NO_RUNS)
    rates = sorted({cell.learning_rate for cell in cells})
    numbers = len(rates) <= MOST_LINES
    column = {row.global_batch_size: i for i, row in enumerate(rows)}
    line = {rate: i for i, rate in enumerate(rates)}
    values: list[list[float | None]] = [[None] * len(rows) for _ in rates]
    for cell in cells:
        values[line[cell.learning_rate]][column[cell.global_batch_size]] = cell.quoted_loss
    means = sorted(v for v in (c.quoted_loss for c in cells) if v is not None and math.isfinite(v))
    heat: Trace = {
        "type": "heatmap",
        "x": list(range(len(rows))),
        "y": list(range(len(rates))),
        "z": values,
        "colorscale": "@loss-scale",
        "xgap": 2,
        "ygap": 2 if numbers else 0,
        "showscale": False,
        "hoverongaps": False,
        "hovertext": [[_cell_text(row, rate) for row in rows] for rate in rates],
        "hoverinfo": "text",
        "customdata": [[cell_key(row.global_batch_size, rate) for row in rows] for rate in rates],
        "zmin": means[0] if means else 0,
        "zmax": _ceiling(means),
    }
    inferred = findings.surface.inferred
    marks = [
        *([_numbers(cells, column, line, means), *_inferred(inferred, column, line)] if numbers else []),
        *_failures(cells, column, line, 10 if numbers else 5),
        *_undertrained(rows, column, line),
    ]
    best = [(column[r.global_batch_size], line[r.best.learning_rate]) for r in rows if r.best]
    tied = findings.surface.tied_cells if findings.surface.resolved else ()
    boxes = [_box(x, y) for x, y in best]
    boxes += [_tied_box(column[cell.global_batch_size], line[cell.learning_rate]) for cell in tied]
    fitted = {
        column[r.global_batch_size]: r.fit.best_learning_rate for r in rows if r.fit.valid and r.fit.best_learning_rate
    }
    if best:
        marks.append(_legend_only(words.BEST_OF_SIZE, "square-open", "@ink"))
    if tied:
        marks.append(_legend_only(words.TIED, "square", "@tied"))
    if inferred:
        marks.append(_legend_only(words.INFERRED, "square-dot", "@tint"))
    if fitted:
        marks.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": words.FITTED,
                "x": [x + 0.4 for x in fitted],
                "y": [_position(rate, rates) for rate in fitted.values()],
                "hovertext": words.describe_fitted(tuple(fitted.values())),
                "hoverinfo": "text",
                "marker": {
                    "symbol": "triangle-left",
                    "size": 10,
                    "color": "@ink",
                    "line": {"width": 1, "color": "@page"},
                },
            }
        )
    ceiling = _ceiling(means)
    return Figure(
        key=key,
        title=title,
        caption=words.surface_caption(
            findings.surface, ceiling if means and ceiling < means[-1] else None, numbers=numbers
        ),
        data=(heat, *([_paler(heat, inferred, column, line)] if inferred else []), *marks),
        layout=layout(
            xaxis=_grid_axis(Units.of(findings).batch_axis, [f"{r.global_batch_size:,}" for r in rows]),
            yaxis=_grid_axis("peak learning rate", [format_learning_rate(r) for r in rates]),
            shapes=boxes,
        ),
        height=150 + (LINE * max(len(rates), 4) if numbers else _height(len(rates))),
        min_width=90 + (46 if numbers else 20) * len(rows),
    )


def _height(rates: int) -> int:
    """Of the cells where they are too many for numbers: it fits on a screen."""
    return min(max(LINE * MOST_LINES // 2, THIN_LINE * rates), TALLEST)


def _paler(heat: Trace, inferred: Sequence[Inferred], column: dict[int, int], line: dict[float, int]) -> Trace:
    """The heat map of what was not run, on the same scale and faint."""
    values: list[list[float | None]] = [[None] * len(column) for _ in line]
    texts = [[""] * len(column) for _ in line]
    for cell in inferred:
        y, x = line[cell.learning_rate], column[cell.global_batch_size]
        values[y][x] = cell.val_loss
        texts[y][x] = lines(words.describe_inferred(cell))
    return {**heat, "z": values, "hovertext": texts, "opacity": 0.4}


def _inferred(inferred: Sequence[Inferred], column: dict[int, int], line: dict[float, int]) -> list[Trace]:
    if not inferred:
        return []
    return [
        {
            "type": "scatter",
            "mode": "text",
            "x": [column[cell.global_batch_size] for cell in inferred],
            "y": [line[cell.learning_rate] for cell in inferred],
            "text": [f"≈{format_loss(cell.val_loss)}" for cell in inferred],
            "textfont": {"size": 10, "color": "@soft"},
            "hoverinfo": "skip",
            "showlegend": False,
        }
    ]


def _numbers(cells: Sequence[Cell], column: dict[int, int], line: dict[float, int], means: Sequence[float]) -> Trace:
    """The mean losses as text, in whichever of ink and page stands out from the cell's colour."""
    span = _ceiling(means) - means[0] if means else 1.0
    shown = [(cell, mean) for cell in cells if (mean := cell.quoted_loss) is not None and math.isfinite(mean)]
    return {
        "type": "scatter",
        "mode": "text",
        "x": [column[c.global_batch_size] for c, _ in shown],
        "y": [line[c.learning_rate] for c, _ in shown],
        "text": [format_loss(mean) for _, mean in shown],
        "textfont": {
            "size": 11.5,
            "color": ["@page" if mean - means[0] < 0.32 * span else "@ink" for _, mean in shown],
        },
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _ceiling(means: Sequence[float]) -> float:
    """Where the colour scale ends: a cell that nearly diverged must not wash out the differences among good ones."""
    if not means:
        return 1.0
    middle = means[len(means) // 2]
    return max(min(means[-1], means[0] + 3 * (middle - means[0])), means[0] + 1e-9)


def _cell_text(row: BatchRow, rate: float) -> str:
    cell = next((c for c in row.cells if c.learning_rate == rate), None)
    return lines(words.describe_cell(row.global_batch_size, rate, cell))


def _failures(cells: Sequence[Cell], column: dict[int, int], line: dict[float, int], size: int) -> list[Trace]:
    traces: list[Trace] = []
    for outcome, symbol, colour in _FAILED:
        found = [c for c in cells if any(run.outcome is outcome for run in c.runs)]
        if found:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": outcome.label,
                    # a cell that also has a loss keeps its number readable: the mark moves to the corner
                    "x": [column[c.global_batch_size] - (0.34 if c.losses else 0) for c in found],
                    "y": [line[c.learning_rate] + (0.28 if c.losses else 0) for c in found],
                    "hoverinfo": "skip",
                    "marker": {
                        "symbol": symbol,
                        "size": size,
                        "color": colour,
                        "line": {"width": 1.6, "color": colour},
                    },
                }
            )
    return traces


def _undertrained(rows: Sequence[BatchRow], column: dict[int, int], line: dict[float, int]) -> list[Trace]:
    found = [
        c
        for row in rows
        for c in row.cells
        if c.runs and all(run.undertrained for run in c.runs) and c.quoted_loss is not None
    ]
    if not found:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": words.UNDERTRAINED,
            "x": [column[c.global_batch_size] - 0.36 for c in found],
            "y": [line[c.learning_rate] for c in found],
            "hoverinfo": "skip",
            "marker": {"symbol": "diamond-open", "size": 9, "color": "@warn", "line": {"width": 1.6, "color": "@warn"}},
        }
    ]


def _legend_only(name: str, symbol: str, colour: str) -> Trace:
    marker = {"symbol": symbol, "size": 11, "color": colour, "line": {"width": 2, "color": colour}}
    return {"type": "scatter", "mode": "markers", "name": name, "x": [None], "y": [None], "marker": marker}


def _box(x: int, y: int) -> Trace:
    corner = {"type": "rect", "x0": x - 0.48, "x1": x + 0.48, "y0": y - 0.46, "y1": y + 0.46}
    return {**corner, "line": {"color": "@ink", "width": 2}, "fillcolor": "rgba(0,0,0,0)"}


def _tied_box(x: int, y: int) -> Trace:
    """Inside the outline of a size's best, so that a cell can have both."""
    corner = {"type": "rect", "x0": x - 0.42, "x1": x + 0.42, "y0": y - 0.38, "y1": y + 0.38}
    return {**corner, "line": {"color": "@tied", "width": 3}, "fillcolor": "rgba(0,0,0,0)"}


def _position(rate: float, rates: Sequence[float]) -> float:
    """Where a learning rate lies on the axis of grid lines, by interpolation in log LR."""
    for i in range(len(rates) - 1):
        if rates[i] <= rate <= rates[i + 1]:
            return i + math.log(rate / rates[i]) / math.log(rates[i + 1] / rates[i])
    return 0.0 if rate < rates[0] else float(len(rates) - 1)


def _grid_axis(title: str, texts: Sequence[str]) -> dict[str, object]:
    apart = math.ceil(len(texts) / MOST_LINES)
    return axis(
        title,
        tickvals=list(range(0, len(texts), apart)),
        ticktext=list(texts[::apart]),
        range=[-0.55, len(texts) - 0.45],
        showgrid=False,
        showline=False,
        ticks="",
        fixedrange=True,
    )
