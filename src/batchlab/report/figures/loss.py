"""The picture of the decision: loss and time against batch size, each size at its own best learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.cost import CURVATURE, margin
from batchlab.analysis.values import BatchRow, Cell, SurfaceFinding
from batchlab.core.format import format_learning_rate
from batchlab.report.figures.figure import Figure, Trace, axis, error_bars, layout, lines, missing, size_axis
from batchlab.report.figures.scales import time_scale
from batchlab.words.figures import loss as words
from batchlab.words.units import Units

MOST_OF_MEDIAN = 12.0
"""The axis of losses ends at this many times the distance from the lowest loss to the median."""


def judged(surface: SurfaceFinding | None) -> list[BatchRow]:
    """The rows that have a loss at a best learning rate, smallest batch first."""
    rows = surface.rows if surface else ()
    return sorted((r for r in rows if r.best and r.val_loss), key=lambda r: r.global_batch_size)


_MARKERS = (
    ("circle", "@accent"),
    ("circle-open", "@ink"),
    ("triangle-up", "@accent"),
    ("triangle-up-open", "@warn"),
    ("x-thin-open", "@soft"),
)
"""(symbol, colour) of a point, in the order of `words.Names`."""


def _meaning(row: BatchRow) -> int:
    """What a point means, as an index of `words.Names` and `_MARKERS`."""
    if row.undertrained:
        return 4
    if row.edge:
        return 2 if row.tied else 3
    return 0 if row.tied else 1


def _points(rows: Sequence[BatchRow], xs: Sequence[float], *, resolved: bool) -> list[Trace]:
    """One trace per meaning, so that the legend says what every marker is."""
    traces: list[Trace] = []
    names = words.WITH_NOISE if resolved else words.WITHOUT_NOISE
    for index, (name, (symbol, colour)) in enumerate(zip(names, _MARKERS, strict=True)):
        picked = [i for i, row in enumerate(rows) if _meaning(row) == index]
        estimates = [(i, estimate) for i in picked if (estimate := rows[i].val_loss)]
        if not estimates:
            continue
        values = [e.value for _, e in estimates]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [xs[i] for i, _ in estimates],
                "y": values,
                "hovertext": [lines(words.describe_size(rows[i])) for i, _ in estimates],
                "hoverinfo": "text",
                "marker": {"symbol": symbol, "size": 10, "color": colour, "line": {"width": 2, "color": colour}},
                "error_y": {
                    **error_bars([e.low for _, e in estimates], values, [e.high for _, e in estimates]),
                    "color": colour,
                },
            }
        )
    return traces


def _rate(row: BatchRow) -> str:
    return format_learning_rate(row.best.learning_rate if row.best else None)


def _connection(rows: Sequence[BatchRow], xs: Sequence[float]) -> Trace:
    settled = [i for i, row in enumerate(rows) if not row.undertrained]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [xs[i] for i in settled],
        "y": [estimate.value for i in settled if (estimate := rows[i].val_loss)],
        "line": {"color": "@rule", "width": 1.5},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _single_runs(rows: Sequence[BatchRow], xs: Sequence[float]) -> list[Trace]:
    """Every seed behind a mean, where there is more than one."""
    dots = [(x, value) for x, row in zip(xs, rows, strict=True) if row.best for value in _several(row.best)]
    if not dots:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "single runs",
            "x": [x for x, _ in dots],
            "y": [y for _, y in dots],
            "marker": {"symbol": "line-ew-open", "size": 9, "color": "@soft", "line": {"width": 1.2, "color": "@soft"}},
            "hovertemplate": "one run: %{y:.4f}<extra></extra>",
        }
    ]


def _several(cell: Cell) -> tuple[float, ...]:
    return cell.losses if len(cell.losses) > 1 else ()


def _tolerated(findings: Findings) -> list[Trace]:
    """The losses that cost at most the tolerance, from the best upwards, as a shape; empty where that is unknown."""
    best = findings.surface.best.val_loss if findings.surface and findings.surface.best else None
    if best is None or findings.slope is None:
        return []
    above = margin(findings.slope, findings.experiment.sweep.tolerance, CURVATURE)
    box = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": best.value, "y1": best.value + above}
    return [{**box, "fillcolor": "@tint", "line": {"width": 0}, "layer": "below"}]


def _resolved(findings: Findings) -> bool:
    return findings.surface is not None and findings.surface.resolved


def decision(findings: Findings) -> Figure:
    """Loss above, time for the budget below, against batch size: what the recommendation rests on, in one picture."""
    key, title = "decision", words.DECISION
    rows, units = judged(findings.surface), Units.of(findings)
    if not rows or not findings.surface:
        return missing(key, title, words.no_loss(findings))
    sizes = [float(row.global_batch_size) for row in rows]
    hours = [row.hours if findings.run_seconds is None else None for row in rows]
    time, unit = _time(rows, sizes, hours)
    # the tick names the learning rate too, while there is room for it on a phone
    rates = {r.global_batch_size: f"{r.global_batch_size:,}<br>{_rate(r)}" for r in rows} if len(rows) <= 6 else {}
    shapes = _tolerated(findings)
    return Figure(
        key=key,
        title=title,
        caption=words.decision_caption(findings, rows, tolerated=bool(shapes)),
        data=(
            _connection(rows, sizes),
            *_single_runs(rows, sizes),
            *_points(rows, sizes, resolved=_resolved(findings)),
            *_chosen(findings, rows),
            *time,
            *([_swatch(words.tolerated(findings.experiment.sweep.tolerance))] if shapes else []),
        ),
        layout=layout(
            xaxis=size_axis(
                f"{units.batch_axis}, best LR" if rates else units.batch_axis,
                [r.global_batch_size for r in rows],
                rates,
                **({"anchor": "y2"} if time else {}),
            ),
            yaxis=axis(words.LOSS_AXIS, **({"domain": [0.4, 1]} if time else {}), nticks=5, **_loss_range(rows)),
            **({"yaxis2": axis(words.time_axis(unit), domain=[0, 0.27], rangemode="tozero", nticks=4)} if time else {}),
            shapes=[{**shape, "yref": "y"} for shape in shapes],
        ),
        height=420,
    )


def _loss_range(rows: Sequence[BatchRow]) -> dict[str, object]:
    """Cuts off what is far above: one bad size must not flatten the differences among good ones."""
    values = sorted(row.val_loss.value for row in rows if row.val_loss)
    ends = [end for row in rows if row.val_loss for end in (row.val_loss.low, row.val_loss.high) if end is not None]
    low, middle, high = min([*values, *ends]), values[len(values) // 2], max([*values, *ends])
    cut = values[0] + MOST_OF_MEDIAN * max(middle - values[0], 1e-9)
    if len(values) < 4 or high <= cut:
        return {}
    return {"range": [low - 0.08 * (cut - low), cut]}


def _time(rows: Sequence[BatchRow], sizes: Sequence[float], hours: Sequence[float | None]) -> tuple[list[Trace], str]:
    """Bars of the time that the budget takes, and its unit; empty where no speed was measured."""
    known = [(size, value) for size, value in zip(sizes, hours, strict=True) if value is not None]
    if not known:
        return [], ""
    factor, unit = time_scale(max(value for _, value in known))
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": words.TIME,
        "x": [size for size, _ in known],
        "y": [value * factor for _, value in known],
        "yaxis": "y2",
        "line": {"color": "@warn", "width": 1.6, "dash": "dash"},
        "marker": {"symbol": "square", "size": 6, "color": "@warn"},
        "hovertemplate": words.time_hover(unit),
    }
    return [trace], unit


def _chosen(findings: Findings, rows: Sequence[BatchRow]) -> list[Trace]:
    """A ring around the recommended size."""
    size = findings.recommended.layout.global_batch_size if findings.recommended else None
    points = [(size, row.val_loss.value) for row in rows if row.global_batch_size == size and row.val_loss]
    if not points:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": words.RECOMMENDED,
            "x": [x for x, _ in points],
            "y": [y for _, y in points],
            "hoverinfo": "skip",
            "marker": {"symbol": "circle-open", "size": 20, "color": "@good", "line": {"width": 3, "color": "@good"}},
        }
    ]


def _swatch(name: str) -> Trace:
    """What the shaded band means, as an entry of the legend."""
    marker = {"symbol": "square", "size": 11, "color": "@tint", "line": {"width": 0}}
    return {"type": "scatter", "mode": "markers", "name": name, "x": [None], "y": [None], "marker": marker}
