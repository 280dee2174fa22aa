"""Plots over training: validation and training loss, learning rate, gradient norms, all against tokens seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.runs import first_runs
from batchlab.analysis.values import BatchRow
from batchlab.core.batch import Unit
from batchlab.core.format import format_learning_rate, format_plural
from batchlab.core.record import MetricRow
from batchlab.report.figures.figure import (
    Figure,
    Point,
    Trace,
    averaged,
    axis,
    downsample,
    layout,
    legend_title,
    log_axis,
    missing,
)
from batchlab.report.figures.loss import judged, no_loss
from batchlab.report.figures.palette import colour_of, symbol_of
from batchlab.report.words import Words, time_scale

STRETCHES = 80
"""Training loss is drawn as at most this many means: single batches scatter more than batch sizes differ."""


def curve_points(rows: Sequence[MetricRow], value: Callable[[MetricRow], float | None]) -> list[Point]:
    return downsample([(float(row.tokens), y) for row in rows if (y := value(row)) is not None])


def curve_line(index: int, total: int, row: BatchRow, points: Sequence[Point], **settings: object) -> Trace:
    rate = format_learning_rate(row.best.learning_rate if row.best else None)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{row.global_batch_size:,} (LR {rate})",
        "legendgroup": f"{row.global_batch_size}",
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "meta": ways(row),
        "line": {"color": colour_of(index, total), "width": 1.6},
        # a few markers along each line say whose it is without colour
        "marker": {"symbol": symbol_of(index), "size": 7, "color": colour_of(index, total), "maxdisplayed": 9},
        "hovertemplate": f"batch {row.global_batch_size:,}: %{{y:.4g}} at %{{x:,}}<extra></extra>",
        **settings,
    }


def ways(row: BatchRow) -> dict[str, float]:
    """What the page divides tokens by to draw a curve against steps, or against hours at the measured speed."""
    hours = {"hours": 3600 * row.tokens_per_second} if row.tokens_per_second else {}
    return {"steps": float(row.layout.tokens_per_step), **hours}


def time_axis(findings: Findings) -> str:
    """The unit in which the time of all runs reads well; empty where a speed is not known."""
    hours = [row.hours for row, _ in first_runs(findings.surface)]
    known = [value for value in hours if value is not None]
    return time_scale(max(known))[1] if known and len(known) == len(hours) else ""


def tokens_axis(words: Words, **settings: object) -> dict[str, object]:
    return axis(f"{words.units} seen", rangemode="tozero", **settings)


def _sized(row_count: int) -> str:
    return f"one line per batch size at its own best learning rate ({format_plural(row_count, 'size')})"


def validation_curves(findings: Findings) -> Figure:
    """Validation loss at the shared evaluation points, every seed of each size's best learning rate."""
    key, title = "curves", "Validation loss during training"
    rows, words = judged(findings.surface), Words.of(findings)
    if not rows:
        return missing(key, title, no_loss(findings))
    traces: list[Trace] = []
    drawn: set[int] = set()
    for index, row in enumerate(rows):
        for run in row.best.runs if row.best else ():
            points = curve_points(run.rows, lambda r: r.val_loss)
            if not points:
                continue
            first = row.global_batch_size not in drawn
            drawn.add(row.global_batch_size)
            traces.append(curve_line(index, len(rows), row, points, showlegend=first, opacity=1 if first else 0.4))
    if not traces:
        return missing(key, title, "The runs left no evaluation series, so their curves cannot be drawn.")
    losses = [trace["y"] for trace in traces]
    ends = _upper_end(losses)
    perplexity = _perplexity_axis(losses, ends) if words.unit is Unit.TOKENS else {}
    if perplexity:
        traces[-1]["yaxis"] = "y2"  # an axis without a curve is not drawn
    return Figure(
        key=key,
        title=title,
        caption=f"{format_plural(len(traces), 'run')}, {_sized(len(drawn))}; fainter lines are further seeds, and all sizes "
        f"are evaluated on the same held-out set at the same numbers of {words.units}{_cut([t['y'] for t in traces])}.",
        data=tuple(traces),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=tokens_axis(words),
            yaxis=axis(words.loss_axis, **ends),
            **perplexity,
        ),
        height=400,
        look_for="A curve that turns up over-fits or diverges; one still falling steeply at its end was cut short by "
        "the budget.",
    )


def _upper_end(series: Sequence[Sequence[float]]) -> dict[str, object]:
    """Cuts off the start of the fall when it would flatten all that follows; zooming out shows it."""
    lasts = [ys[-1] for ys in series]
    firsts = max(ys[0] for ys in series)
    low, high = min(min(ys) for ys in series), max(lasts)
    top = high + 2.0 * max(high - low, 0.15 * abs(high))
    return {"range": [low - 0.05 * (top - low), top]} if firsts > top else {}


PERPLEXITIES = tuple(step * 10**decade for decade in range(5) for step in (1, 1.5, 2, 3, 5, 7))


def _perplexity_axis(series: Sequence[Sequence[float]], ends: Mapping[str, Any]) -> dict[str, Any]:
    """A second axis at the same heights: perplexity is the exponential of the loss in nats per token.

    Empty where not even two round values lie between the losses.
    """
    low, high = ends.get("range") or (min(min(ys) for ys in series), max(max(ys) for ys in series))
    shown = [value for value in PERPLEXITIES if low <= math.log(value) <= high]
    if len(shown) < 2:
        return {}
    ticks = {"tickvals": [math.log(value) for value in shown], "ticktext": [f"{value:,g}" for value in shown]}
    overlay = {"overlaying": "y", "side": "right", "matches": "y", "showgrid": False, **ticks, **ends}
    return {"yaxis2": axis("perplexity", **overlay)}


def _cut(series: Sequence[Sequence[float]]) -> str:
    return "; the start of the fall lies above the plot" if series and _upper_end(series) else ""


def training_curves(findings: Findings) -> Figure:
    """Training loss above, learning rate below, so that the warm-up is seen beside what it does."""
    key, title = "training", "Training loss and learning rate"
    pairs, words = first_runs(findings.surface), Words.of(findings)
    if not pairs:
        return missing(key, title, no_loss(findings))
    traces: list[Trace] = []
    drawn = 0
    for index, (row, run) in enumerate(pairs):
        losses = averaged([(float(r.tokens), r.train_loss) for r in run.rows if r.train_loss is not None], STRETCHES)
        rates = curve_points(run.rows, lambda r: r.learning_rate)
        drawn += bool(losses)
        if losses:
            traces.append(curve_line(index, len(pairs), row, losses))
        if rates:
            traces.append(curve_line(index, len(pairs), row, rates, yaxis="y2", showlegend=not losses))
    if not traces:
        return missing(key, title, "The runs left no training series, so there is nothing to draw.")
    schedule = findings.experiment.schedule
    warmup = schedule.warmup_fraction * (findings.token_budget or max(run.tokens for _, run in pairs))
    where = (
        f"shaded: the warm-up, the first {schedule.warmup_fraction * 100:.3g} % of the budget, the same number of "
        f"{words.units} for every size"
        if warmup
        else "there is no warm-up"
    )
    curves = [t["y"] for t in traces if t.get("yaxis") != "y2"]
    return Figure(
        key=key,
        title=title,
        caption=f"n = {format_plural(drawn, 'run')}, {_sized(len(pairs))}, lowest seed; training loss is "
        f"averaged over at most {STRETCHES} stretches of a run; {where}{_cut(curves)}.",
        data=tuple(traces),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=tokens_axis(words, anchor="y2"),
            yaxis=axis(words.train_loss_axis, domain=[0.36, 1], **(_upper_end(curves) if curves else {})),
            yaxis2=axis("learning rate", domain=[0, 0.26], rangemode="tozero", exponentformat="power", nticks=4),
            shapes=[_warmup(warmup)] if warmup else [],
        ),
        look_for="Spikes, and a loss that rises again after the warm-up: the learning rate is near its limit there.",
        height=480,
    )


def _warmup(tokens: float) -> Trace:
    box = {"type": "rect", "xref": "x", "yref": "paper", "x0": 0, "x1": tokens, "y0": 0, "y1": 1}
    return {**box, "fillcolor": "@tint", "line": {"width": 0}, "layer": "below"}


def gradient_norms(findings: Findings) -> Figure:
    """Norm of the gradient before clipping, per batch size."""
    key, title = "gradients", "Gradient norm during training"
    pairs, words = first_runs(findings.surface), Words.of(findings)
    if not pairs:
        return missing(key, title, no_loss(findings))
    series = [(row, curve_points(run.rows, lambda r: r.grad_norm)) for row, run in pairs]
    drawn = [(i, row, points) for i, (row, points) in enumerate(series) if any(y > 0 for _, y in points)]
    if not drawn:
        return missing(key, title, "The runs recorded no gradient norms: the task applies its own update.")
    clip = findings.experiment.optimizer.grad_clip
    clipped = f"dashed: clipping at {clip:g}, which cut {clipped_shares(findings)}" if clip else "nothing was clipped"
    lines = [curve_line(i, len(pairs), row, points) for i, row, points in drawn]
    return Figure(
        key=key,
        title=title,
        caption=f"n = {format_plural(len(drawn), 'run')}, {_sized(len(drawn))}, lowest seed; before clipping; {clipped}.",
        data=tuple(lines),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=tokens_axis(words),
            yaxis=log_axis("gradient norm (log scale)", [y for t in lines for y in t["y"]] + [clip or 1.0]),
            shapes=[_level(clip)] if clip else [],
        ),
        look_for="Larger batches have smaller norms, because noise averages out; growth late in training, or clipping "
        "of most steps, means that the learning rate is set by the clipping.",
    )


def clipped_shares(findings: Findings) -> str:
    """`8 % (batch 4) to 31 % (batch 64) of the steps`, over one run per size at its best learning rate."""
    shares = [
        (run.clipped_fraction, row.global_batch_size)
        for row, run in first_runs(findings.surface)
        if run.clipped_fraction is not None
    ]
    if not shares:
        return "an unknown share of the steps"
    (low, low_at), (high, high_at) = min(shares), max(shares)
    if f"{low:.0%}" == f"{high:.0%}":
        return f"{low * 100:.0f} % of the steps at {format_plural(len(shares), 'size')}"
    return f"{low * 100:.0f} % (batch {low_at:,}) to {high * 100:.0f} % (batch {high_at:,}) of the steps"


def _level(value: float) -> Trace:
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value}
    return {**line, "line": {"color": "@warn", "width": 1.4, "dash": "dash"}}
