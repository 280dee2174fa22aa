"""Plots of final losses: against batch size and against time, each size at its own best learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, Cell, SurfaceFinding
from batchlab.core.format import format_learning_rate
from batchlab.report.figures.figure import Figure, Trace, axis, error_bars, layout, lines, missing, size_axis
from batchlab.report.figures.scales import time_scale
from batchlab.words.figures import loss as words
from batchlab.words.units import Units


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


def _points(rows: Sequence[BatchRow], xs: Sequence[float], *, named: bool, resolved: bool) -> list[Trace]:
    """One trace per meaning, so that the legend says what every marker is; `named` writes the size beside each."""
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
                "mode": "markers+text" if named else "markers",
                "name": name,
                "x": [xs[i] for i, _ in estimates],
                "y": values,
                "text": [f"  {rows[i].global_batch_size:,}" for i, _ in estimates],
                "textposition": "middle right",
                "textfont": {"size": 12, "color": "@ink"},
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


def _band(surface: SurfaceFinding) -> list[Trace]:
    """The best row's interval across the plot, as a shape."""
    best = surface.best.val_loss if surface.best else None
    if best is None or best.low is None or best.high is None:
        return []
    box = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": best.low, "y1": best.high}
    return [{**box, "fillcolor": "@tint", "line": {"width": 0}, "layer": "below"}]


def _resolved(findings: Findings) -> bool:
    return findings.surface is not None and findings.surface.resolved


def loss_vs_batch(findings: Findings) -> Figure:
    """Final validation loss of every batch size at its own best learning rate."""
    key, title = "loss-batch", words.LOSS_VS_BATCH
    rows, units = judged(findings.surface), Units.of(findings)
    if not rows or not findings.surface:
        return missing(key, title, words.no_loss(findings))
    sizes = [float(row.global_batch_size) for row in rows]
    # the tick names the learning rate too, while there is room for it on a phone
    rates = {r.global_batch_size: f"{r.global_batch_size:,}<br>{_rate(r)}" for r in rows} if len(rows) <= 6 else {}
    return Figure(
        key=key,
        title=title,
        caption=words.loss_vs_batch_caption(findings, rows),
        data=(
            _connection(rows, sizes),
            *_single_runs(rows, sizes),
            *_points(rows, sizes, named=False, resolved=_resolved(findings)),
        ),
        layout=layout(
            xaxis=size_axis(
                f"{units.batch_axis}, best LR" if rates else units.batch_axis,
                [r.global_batch_size for r in rows],
                rates,
            ),
            yaxis=axis(units.loss_axis),
            shapes=_band(findings.surface),
        ),
        height=380,
    )


def loss_vs_hours(findings: Findings) -> Figure:
    """The same losses against the time the budget takes at the measured speed of each size."""
    key, title = "loss-hours", words.LOSS_VS_TIME
    rows, units = judged(findings.surface), Units.of(findings)
    if not rows:
        return missing(key, title, words.no_loss(findings))
    if findings.run_seconds is not None:
        return missing(key, title, words.AT_EQUAL_TIME)
    timed = [row for row in rows if row.hours is not None]
    if not timed:
        return missing(key, title, words.no_speed(units))
    hours = [row.hours for row in timed if row.hours is not None]
    factor, unit = time_scale(max(hours))
    xs = [h * factor for h in hours]
    return Figure(
        key=key,
        title=title,
        caption=words.loss_vs_time_caption(findings, rows, timed),
        data=(_connection(timed, xs), *_points(timed, xs, named=True, resolved=_resolved(findings))),
        layout=layout(
            xaxis=axis(words.time_axis(unit), rangemode="tozero"),
            yaxis=axis(units.loss_axis),
            shapes=_band(findings.surface) if findings.surface else [],
        ),
        height=380,
    )
