"""Sentences about learning rates: how the best one moved with the batch size, and what a single one would have said."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchlab.analysis.capacity.memory import fit_line
from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.sweep.shared_rate import compare_rates
from batchlab.analysis.values import BatchRow, Interval, SurfaceFinding
from batchlab.core.format import format_learning_rate, format_list, format_loss

WORTH_SAYING = 1.05
"""Factor between the fitted best and the cautious learning rate from which on both are given."""


def rate_conclusions(surface: SurfaceFinding) -> list[str]:
    """Sizes that were not tuned, a single rate against each size's own, the best rate's rise with the batch."""
    return _untuned(surface) + _one_rate(surface) + _learning_rates(surface)


@dataclass(frozen=True, slots=True)
class Exponent:
    """Best learning rate ∝ batch^value over n batch sizes; the interval is the regression's own."""

    value: Interval
    interpolated: int  # of the n, those whose best learning rate is a fitted vertex, not a grid value


def learning_rate_exponent(surface: SurfaceFinding) -> Exponent | None:
    """Slope of log2(best learning rate) over log2(batch), from judged sizes whose best is inside their grid.

    Fitted vertex where it is valid, else the grid's value. None below three sizes. A single power law is a summary:
    public sweeps rise as batch^0.2–0.9 and flatten at large batches, and the interval assumes independent errors.
    """
    rows = [row for row in surface.rows if row.best and not row.undertrained and not row.edge and len(row.cells) > 1]
    points, interpolated = [], 0
    for row in rows:
        rate = row.fit.best_learning_rate if row.fit.valid else row.best.learning_rate if row.best else None
        interpolated += row.fit.valid
        if rate is not None:
            points.append((math.log2(row.global_batch_size), math.log2(rate)))
    line = fit_line(points)
    if line is None:
        return None
    mean_x = sum(x for x, _ in points) / line.n
    residual = sum((y - line.intercept - line.slope * x) ** 2 for x, y in points)
    error = math.sqrt(residual / (line.n - 2) / sum((x - mean_x) ** 2 for x, _ in points))
    half = t_quantile(0.5 + CONFIDENCE / 2, line.n - 2) * error
    return Exponent(Interval(line.slope, line.slope - half, line.slope + half, line.n), interpolated)


def _one_rate(surface: SurfaceFinding) -> list[str]:
    """What one learning rate for all sizes would have concluded, where that was trained too."""
    *shared, own = compare_rates(surface) or (None,)
    if own is None or len({rate for row in surface.rows for rate in _rates(row)}) < 2:
        return []
    worst = max(shared, key=lambda comparison: comparison.spread)
    where = f"at {format_learning_rate(worst.learning_rate)}" if worst.learning_rate else ""
    favoured = sorted({comparison.lowest for comparison in shared})
    who = f"batch {favoured[0]:,}" if len(favoured) == 1 else f"batch {format_list(favoured)}, each at some rate,"
    return [
        f"With one learning rate for all sizes ({len(shared)} were tried at every size) {who} would have looked best, "
        f"and the sizes would have differed by up to {format_loss(worst.spread)} ({where}); "
        f"each at its own best rate they differ by {format_loss(own.spread)}, batch {own.lowest:,} lowest (on the seeds "
        "all cells share)."
    ]


def _rates(row: BatchRow) -> list[float]:
    return [cell.learning_rate for cell in row.cells]


def _untuned(surface: SurfaceFinding) -> list[str]:
    rows = [row for row in surface.rows if row.best is not None and not row.undertrained and len(row.cells) == 1]
    if not rows:
        return []
    rates = {rate for row in surface.rows for rate in _rates(row)}
    if len(rates) == 1 and len(rows) > 1:
        return [
            f"Every size ran at one learning rate only, {format_learning_rate(rates.pop())}, the best for at most some of them: "
            "this compares sizes at that rate and does not say which is best at its own. A study with "
            "--learning-rates over a range shows what changes."
        ]
    return [
        f"Batch {format_list([row.global_batch_size for row in rows])} ran at one learning rate only: whether it is the "
        "best for the size is not known, nor how the size compares at its own best."
    ]


def _learning_rates(surface: SurfaceFinding) -> list[str]:
    sentences = []
    exponent = learning_rate_exponent(surface)
    if exponent is not None:
        slope = exponent.value
        low, high = slope.low or 0.0, slope.high or 0.0
        sentence = (
            f"Across batch sizes the best learning rate went like batch^{slope.value:.2f} "
            f"(95 % interval {low:.2f} to {high:.2f}, n = {slope.n} sizes, {exponent.interpolated} of them "
            "interpolated)"
        )
        if low <= 0 <= high:
            sentence += "; no dependence is compatible with that"
        elif low > 0.5:
            sentence += "; steeper than the square-root rule"
        elif high < 0.5:
            sentence += "; flatter than the square-root rule"
        sentences.append(sentence + ".")
    sentences += _fits(surface)
    edges = [row for row in surface.rows if row.edge and not row.undertrained]
    if edges:
        sentences.append(
            f"The best learning rate of batch {format_list([row.global_batch_size for row in edges])} lies at the end of "
            "what trained there: these losses are upper bounds of what a wider grid would find."
        )
    return sentences


def _fits(surface: SurfaceFinding) -> list[str]:
    """Of the as-good sizes: the learning rate to prefer between those tried, or the run that would tell."""
    sentences = []
    for row in surface.tied:
        fit, size = row.fit, row.global_batch_size
        if fit.valid and fit.best_learning_rate and fit.cautious_learning_rate and fit.doublings:
            text = (
                f"At batch {size:,} a local fit (n = {len(fit.learning_rates)} learning rates) puts the best at "
                f"{format_learning_rate(fit.best_learning_rate)}, give or take {fit.doublings:.2g} doublings"
            )
            if fit.best_learning_rate > WORTH_SAYING * fit.cautious_learning_rate:
                text += f"; too high costs more than too low, so with that doubt {format_learning_rate(fit.cautious_learning_rate)} "
                text += "costs least"
            sentences.append(text + ".")
        elif fit.next_learning_rate and row.best:
            sentences.append(
                f"Whether {format_learning_rate(row.best.learning_rate)} is the best learning rate of batch {size:,} cannot be "
                f"told (n = {len(row.cells)} tried; {fit.why_not}); one more run at "
                f"{format_learning_rate(fit.next_learning_rate)} would help most."
            )
    return sentences
