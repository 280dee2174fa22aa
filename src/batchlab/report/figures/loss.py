"""Plots of final losses: against batch size and against time, each size at its own best learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, Cell, SurfaceFinding
from batchlab.core.format import format_interval, format_learning_rate, format_list, format_plural
from batchlab.core.record import Outcome
from batchlab.report.figures.figure import Figure, Trace, axis, error_bars, label, layout, missing, size_axis
from batchlab.report.words import Words, time_scale

NO_SWEEP = "No training run has finished yet, so there is no loss to show."


def judged(surface: SurfaceFinding | None) -> list[BatchRow]:
    """The rows that have a loss at a best learning rate, smallest batch first."""
    rows = surface.rows if surface else ()
    return sorted((r for r in rows if r.best and r.val_loss), key=lambda r: r.global_batch_size)


def no_loss(findings: Findings) -> str:
    """Why no batch size has a loss, in a sentence."""
    if not findings.runs:
        return NO_SWEEP
    ended = sorted({run.outcome.label for run in findings.runs if run.outcome is not Outcome.COMPLETED})
    if not ended:
        return NO_SWEEP
    return f"None of {format_plural(len(findings.runs), 'training run')} has a final validation loss: {format_list(ended)}."


def _group(row: BatchRow) -> int:
    if row.undertrained:
        return 4
    if row.edge:
        return 2 if row.tied else 3
    return 0 if row.tied else 1


_GROUPS = (
    ("best, or cannot be told from it", "circle", "@accent"),
    ("worse than the best", "circle-open", "@ink"),
    ("as good, its best LR at the grid's edge", "triangle-up", "@accent"),
    ("worse, its best LR at the grid's edge", "triangle-up-open", "@warn"),
    ("undertrained: too few steps to judge", "x-thin-open", "@soft"),
)
"""What a point means: name, marker, colour; `_group` gives the index."""

_UNRESOLVED = (
    "lowest loss seen",
    "higher loss",
    "lowest, its best LR at the grid's edge",
    "higher, its best LR at the grid's edge",
    _GROUPS[4][0],
)
"""The names where noise was not measured: nothing is called worse then."""


def _points(rows: Sequence[BatchRow], xs: Sequence[float], *, named: bool, resolved: bool) -> list[Trace]:
    """One trace per meaning, so that the legend says what every marker is; `named` writes the size beside each."""
    traces: list[Trace] = []
    for index, (name, symbol, colour) in enumerate(_GROUPS):
        picked = [i for i, row in enumerate(rows) if _group(row) == index]
        estimates = [(i, estimate) for i in picked if (estimate := rows[i].val_loss)]
        if not estimates:
            continue
        values = [e.value for _, e in estimates]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text" if named else "markers",
                "name": name if resolved else _UNRESOLVED[index],
                "x": [xs[i] for i, _ in estimates],
                "y": values,
                "text": [f"  {rows[i].global_batch_size:,}" for i, _ in estimates],
                "textposition": "middle right",
                "textfont": {"size": 12, "color": "@ink"},
                "hovertext": [_describe(rows[i]) for i, _ in estimates],
                "hoverinfo": "text",
                "marker": {"symbol": symbol, "size": 10, "color": colour, "line": {"width": 2, "color": colour}},
                "error_y": {
                    **error_bars([e.low for _, e in estimates], values, [e.high for _, e in estimates]),
                    "color": colour,
                },
            }
        )
    return traces


def _describe(row: BatchRow) -> str:
    runs = len(row.best.losses) if row.best else 0
    text = f"batch {row.global_batch_size:,} at LR {_rate(row)}<br>loss {format_interval(row.val_loss)}<br>{format_plural(runs, 'run')}"
    return f"{text}<br>{label(row.remark)}" if row.remark else text


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


def _noise_words(findings: Findings) -> str:
    surface = findings.surface
    seeds = [r.val_loss.n for r in judged(surface) if r.val_loss]
    if not surface or not surface.resolved or max(seeds, default=1) < 2:
        return "n = 1 run per point, so the points carry no interval"
    low, high = min(seeds), max(seeds)
    runs = f"{low}" if low == high else f"{low} to {high}"
    return f"bars are 95 % intervals, n = {runs} runs per point, shaded: the interval of the best"


def loss_vs_batch(findings: Findings) -> Figure:
    """Final validation loss of every batch size at its own best learning rate."""
    key, title = "loss-batch", "Loss against batch size, each at its own best learning rate"
    rows, words = judged(findings.surface), Words.of(findings)
    if not rows or not findings.surface:
        return missing(key, title, no_loss(findings))
    sizes = [float(row.global_batch_size) for row in rows]
    # the tick names the learning rate too, while there is room for it on a phone
    rates = {r.global_batch_size: f"{r.global_batch_size:,}<br>{_rate(r)}" for r in rows} if len(rows) <= 6 else {}
    budget = f"{findings.token_budget:,} {words.units} each" if findings.token_budget else f"equal {words.units} each"
    return Figure(
        key=key,
        title=title,
        caption=f"{format_plural(len(rows), 'batch size')} trained for {budget}, {len(findings.runs):,} runs in all; "
        f"each point is the best learning rate of its size; {_noise_words(findings)}.",
        data=(
            _connection(rows, sizes),
            *_single_runs(rows, sizes),
            *_points(rows, sizes, named=False, resolved=_resolved(findings)),
        ),
        layout=layout(
            xaxis=size_axis(
                f"{words.batch_axis}, best LR" if rates else words.batch_axis,
                [r.global_batch_size for r in rows],
                rates,
            ),
            yaxis=axis(words.loss_axis),
            shapes=_band(findings.surface),
        ),
        height=380,
    )


def loss_vs_hours(findings: Findings) -> Figure:
    """The same losses against the time the budget takes at the measured speed of each size."""
    key, title = "loss-hours", "Loss against training time"
    rows, words = judged(findings.surface), Words.of(findings)
    if not rows:
        return missing(key, title, no_loss(findings))
    timed = [row for row in rows if row.hours is not None]
    if not timed:
        return missing(
            key,
            title,
            f"The speed of no trained batch size was measured, so there are no {words.units}/s to divide by.",
        )
    hours = [row.hours for row in timed if row.hours is not None]
    factor, unit = time_scale(max(hours))
    xs = [h * factor for h in hours]
    untimed = len(rows) - len(timed)
    without = f"; {format_plural(untimed, 'size')} without a measured speed not shown" if untimed else ""
    return Figure(
        key=key,
        title=title,
        caption=f"Time is the budget divided by the measured {words.units}/s of each size running alone, not the clock "
        f"of the sweep; {format_plural(len(timed), 'batch size')}{without}; {_noise_words(findings)}.",
        data=(_connection(timed, xs), *_points(timed, xs, named=True, resolved=_resolved(findings))),
        layout=layout(
            xaxis=axis(f"training time for the budget ({unit})", rangemode="tozero"),
            yaxis=axis(words.loss_axis),
            shapes=_band(findings.surface) if findings.surface else [],
        ),
        height=380,
    )
