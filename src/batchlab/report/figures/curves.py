"""Plots over training: validation and training loss, learning rate, gradient norms, all against tokens seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.runs import first_runs
from batchlab.analysis.values import BatchRow
from batchlab.core.batch import Unit
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
from batchlab.report.figures.loss import judged
from batchlab.report.figures.palette import colour_of, symbol_of
from batchlab.report.figures.scales import time_scale
from batchlab.words.figures import curves as words
from batchlab.words.figures.loss import no_loss
from batchlab.words.units import Units

SEEDS = 8
"""Curves of one batch size at most: more cannot be told apart."""

STRETCHES = 80
"""Training loss is drawn as at most this many means: single batches scatter more than batch sizes differ."""


def curve_points(rows: Sequence[MetricRow], value: Callable[[MetricRow], float | None]) -> list[Point]:
    return downsample([(float(row.tokens), y) for row in rows if (y := value(row)) is not None])


def curve_line(index: int, total: int, row: BatchRow, points: Sequence[Point], **settings: object) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": words.size_and_rate(row.global_batch_size, row.best.learning_rate if row.best else None),
        "legendgroup": f"{row.global_batch_size}",
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "meta": ways(row),
        "line": {"color": colour_of(index, total), "width": 1.6},
        # a few markers along each line identify it without colour
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


def tokens_axis(units: Units, **settings: object) -> dict[str, object]:
    return axis(words.tokens_seen(units), rangemode="tozero", **settings)


def validation_curves(findings: Findings) -> Figure:
    """Validation loss at the shared evaluation points, every seed of each size's best learning rate."""
    key, title = "curves", words.VALIDATION
    rows, units = judged(findings.surface), Units.of(findings)
    if not rows:
        return missing(key, title, no_loss(findings))
    traces: list[Trace] = []
    drawn: set[int] = set()
    omitted = 0
    for index, row in enumerate(rows):
        evaluated = [run for run in (row.best.runs if row.best else ()) if run.val_curve]
        omitted += len(evaluated[SEEDS:])
        for run in evaluated[:SEEDS]:
            points = downsample([(float(tokens), loss) for tokens, loss in run.val_curve])
            first = row.global_batch_size not in drawn
            drawn.add(row.global_batch_size)
            traces.append(curve_line(index, len(rows), row, points, showlegend=first, opacity=1 if first else 0.4))
    if not traces:
        return missing(key, title, words.NO_EVALUATIONS)
    losses = [trace["y"] for trace in traces]
    ends = _upper_end(losses)
    perplexity = _perplexity_axis(losses, ends) if units.unit is Unit.TOKENS and not units.metric else {}
    if perplexity:
        traces[-1]["yaxis"] = "y2"  # an axis without a curve is not drawn
    return Figure(
        key=key,
        title=title,
        caption=words.validation_caption(findings, len(traces), len(drawn), bool(ends), omitted),
        data=tuple(traces),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=tokens_axis(units),
            yaxis=axis(units.loss_axis, **ends),
            **perplexity,
        ),
        height=340,
        look_for=words.LOOK_FOR_VALIDATION,
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


def training_curves(findings: Findings) -> Figure:
    """Training loss above, learning rate below, so that the warm-up is seen beside its effect."""
    key, title = "training", words.TRAINING
    pairs, units = first_runs(findings.surface), Units.of(findings)
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
        return missing(key, title, words.NO_TRAINING_LOSS)
    longest = max(findings.schedule_at(row.global_batch_size).warmup_fraction for row, _ in pairs)
    most = max(run.tokens for _, run in pairs)
    warmup = longest * (findings.token_budget if findings.run_seconds is None and findings.token_budget else most)
    curves = [t["y"] for t in traces if t.get("yaxis") != "y2"]
    ends = _upper_end(curves) if curves else {}
    return Figure(
        key=key,
        title=title,
        caption=words.training_caption(findings, drawn, len(pairs), STRETCHES, longest, cut=bool(ends)),
        data=tuple(traces),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=tokens_axis(units, anchor="y2"),
            yaxis=axis(units.train_loss_axis, domain=[0.36, 1], **ends),
            yaxis2=axis("learning rate", domain=[0, 0.26], rangemode="tozero", exponentformat="power", nticks=4),
            shapes=[_warmup(warmup)] if warmup else [],
        ),
        look_for=words.LOOK_FOR_TRAINING,
        height=480,
    )


def _warmup(tokens: float) -> Trace:
    box = {"type": "rect", "xref": "x", "yref": "paper", "x0": 0, "x1": tokens, "y0": 0, "y1": 1}
    return {**box, "fillcolor": "@tint", "line": {"width": 0}, "layer": "below"}


def gradient_norms(findings: Findings) -> Figure:
    """Norm of the gradient before clipping, per batch size."""
    key, title = "gradients", words.GRADIENTS
    pairs, units = first_runs(findings.surface), Units.of(findings)
    if not pairs:
        return missing(key, title, no_loss(findings))
    series = [(row, curve_points(run.rows, lambda r: r.grad_norm)) for row, run in pairs]
    drawn = [(i, row, points) for i, (row, points) in enumerate(series) if any(y > 0 for _, y in points)]
    if not drawn:
        return missing(key, title, words.NO_GRADIENT_NORMS)
    clip = findings.experiment.optimizer.grad_clip
    lines = [curve_line(i, len(pairs), row, points) for i, row, points in drawn]
    return Figure(
        key=key,
        title=title,
        caption=words.gradients_caption(findings, len(drawn)),
        data=tuple(lines),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=tokens_axis(units),
            yaxis=log_axis("gradient norm (log scale)", [y for t in lines for y in t["y"]] + [clip or 1.0]),
            shapes=[_level(clip)] if clip else [],
        ),
        look_for=words.LOOK_FOR_GRADIENTS,
    )


def _level(value: float) -> Trace:
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value}
    return {**line, "line": {"color": "@warn", "width": 1.4, "dash": "dash"}}
