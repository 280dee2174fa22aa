"""Plots over training: validation and training loss, learning rate, gradient norms, all against tokens seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchlab.analysis.findings import BatchRow, Findings, Run
from batchlab.record import MetricRow, Outcome
from batchlab.report.figure import (
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
from batchlab.report.loss_figures import judged, no_loss
from batchlab.report.palette import colour_of, symbol_of
from batchlab.report.words import Words, learning_rate, plural

STRETCHES = 80
"""Training loss is drawn as at most this many means: single batches scatter more than batch sizes differ."""


def first_runs(findings: Findings) -> list[tuple[BatchRow, Run]]:
    """One completed run per batch size, at its best learning rate: the one with the lowest seed."""
    pairs = []
    for row in judged(findings.surface):
        done = [run for run in (row.best.runs if row.best else ()) if run.outcome is Outcome.COMPLETED]
        if done:
            pairs.append((row, min(done, key=lambda run: run.seed)))
    return pairs


def _series(rows: Sequence[MetricRow], value: Callable[[MetricRow], float | None]) -> list[Point]:
    return downsample([(float(row.tokens), y) for row in rows if (y := value(row)) is not None])


def _line(index: int, total: int, row: BatchRow, points: Sequence[Point], **settings: object) -> Trace:
    rate = learning_rate(row.best.learning_rate if row.best else None)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{row.global_batch_size:,} (LR {rate})",
        "legendgroup": f"{row.global_batch_size}",
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "line": {"color": colour_of(index, total), "width": 1.6},
        # a few markers along each line say whose it is without colour
        "marker": {"symbol": symbol_of(index), "size": 7, "color": colour_of(index, total), "maxdisplayed": 9},
        "hovertemplate": f"batch {row.global_batch_size:,}: %{{y:.4g}} at %{{x:,}}<extra></extra>",
        **settings,
    }


def _tokens_axis(words: Words, **settings: object) -> dict[str, object]:
    return axis(f"{words.units} seen", rangemode="tozero", **settings)


def _sized(row_count: int) -> str:
    return f"one line per batch size at its own best learning rate ({plural(row_count, 'size')})"


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
            points = _series(run.rows, lambda r: r.val_loss)
            if not points:
                continue
            first = row.global_batch_size not in drawn
            drawn.add(row.global_batch_size)
            traces.append(_line(index, len(rows), row, points, showlegend=first, opacity=1 if first else 0.4))
    if not traces:
        return missing(key, title, "The runs left no evaluation series, so their curves cannot be drawn.")
    return Figure(
        key=key,
        title=title,
        caption=f"{plural(len(traces), 'run')}, {_sized(len(drawn))}; fainter lines are further seeds, and all sizes "
        f"are evaluated on the same held-out set at the same numbers of {words.units}{_cut([t['y'] for t in traces])}.",
        data=tuple(traces),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=_tokens_axis(words),
            yaxis=axis(words.loss_axis, **_upper_end([t["y"] for t in traces])),
        ),
        height=400,
    )


def _upper_end(series: Sequence[Sequence[float]]) -> dict[str, object]:
    """Cuts off the start of the fall when it would flatten all that follows; zooming out shows it."""
    lasts = [ys[-1] for ys in series]
    firsts = max(ys[0] for ys in series)
    low, high = min(min(ys) for ys in series), max(lasts)
    top = high + 2.0 * max(high - low, 0.15 * abs(high))
    return {"range": [low - 0.05 * (top - low), top]} if firsts > top else {}


def _cut(series: Sequence[Sequence[float]]) -> str:
    return "; the start of the fall lies above the plot" if series and _upper_end(series) else ""


def training_curves(findings: Findings) -> Figure:
    """Training loss above, learning rate below, so that the warm-up is seen beside what it does."""
    key, title = "training", "Training loss and learning rate"
    pairs, words = first_runs(findings), Words.of(findings)
    if not pairs:
        return missing(key, title, no_loss(findings))
    traces: list[Trace] = []
    drawn = 0
    for index, (row, run) in enumerate(pairs):
        losses = averaged([(float(r.tokens), r.train_loss) for r in run.rows if r.train_loss is not None], STRETCHES)
        rates = _series(run.rows, lambda r: r.learning_rate)
        drawn += bool(losses)
        if losses:
            traces.append(_line(index, len(pairs), row, losses))
        if rates:
            traces.append(_line(index, len(pairs), row, rates, yaxis="y2", showlegend=not losses))
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
        caption=f"n = {plural(drawn, 'run')}, {_sized(len(pairs))}, lowest seed; training loss is "
        f"averaged over at most {STRETCHES} stretches of a run; {where}{_cut(curves)}.",
        data=tuple(traces),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=_tokens_axis(words, anchor="y2"),
            yaxis=axis(words.train_loss_axis, domain=[0.36, 1], **(_upper_end(curves) if curves else {})),
            yaxis2=axis("learning rate", domain=[0, 0.26], rangemode="tozero", exponentformat="power", nticks=4),
            shapes=[_warmup(warmup)] if warmup else [],
        ),
        height=480,
    )


def _warmup(tokens: float) -> Trace:
    box = {"type": "rect", "xref": "x", "yref": "paper", "x0": 0, "x1": tokens, "y0": 0, "y1": 1}
    return {**box, "fillcolor": "@tint", "line": {"width": 0}, "layer": "below"}


def gradient_norms(findings: Findings) -> Figure:
    """Norm of the gradient before clipping, per batch size."""
    key, title = "gradients", "Gradient norm during training"
    pairs, words = first_runs(findings), Words.of(findings)
    if not pairs:
        return missing(key, title, no_loss(findings))
    series = [(row, _series(run.rows, lambda r: r.grad_norm)) for row, run in pairs]
    drawn = [(i, row, points) for i, (row, points) in enumerate(series) if any(y > 0 for _, y in points)]
    if not drawn:
        return missing(key, title, "The runs recorded no gradient norms: the task applies its own update.")
    clip = findings.experiment.optimizer.grad_clip
    clipped = f"dashed: clipping at {clip:g}, which cut {clipped_shares(findings)}" if clip else "nothing was clipped"
    lines = [_line(i, len(pairs), row, points) for i, row, points in drawn]
    return Figure(
        key=key,
        title=title,
        caption=f"n = {plural(len(drawn), 'run')}, {_sized(len(drawn))}, lowest seed; before clipping; {clipped}.",
        data=tuple(lines),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=_tokens_axis(words),
            yaxis=log_axis("gradient norm (log scale)", [y for t in lines for y in t["y"]] + [clip or 1.0]),
            shapes=[_level(clip)] if clip else [],
        ),
    )


def clipped_shares(findings: Findings) -> str:
    """`8 % (batch 4) to 31 % (batch 64) of the steps`, over one run per size at its best learning rate."""
    shares = [
        (run.clipped_fraction, row.global_batch_size)
        for row, run in first_runs(findings)
        if run.clipped_fraction is not None
    ]
    if not shares:
        return "an unknown share of the steps"
    (low, low_at), (high, high_at) = min(shares), max(shares)
    if f"{low:.0%}" == f"{high:.0%}":
        return f"{low * 100:.0f} % of the steps at {plural(len(shares), 'size')}"
    return f"{low * 100:.0f} % (batch {low_at:,}) to {high * 100:.0f} % (batch {high_at:,}) of the steps"


def _level(value: float) -> Trace:
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value}
    return {**line, "line": {"color": "@warn", "width": 1.4, "dash": "dash"}}
