"""Sentences about learning rates: how the best one scales with the batch size, and what a single one would show."""

from __future__ import annotations

from batchlab.analysis.sweep.learning_rate_exponent import MIN_SIZES, learning_rate_exponent
from batchlab.analysis.sweep.learning_rate_fit import MIN_CELLS
from batchlab.analysis.sweep.shared_rate import compare_rates
from batchlab.analysis.values import BatchRow, Interval, LrFit, SurfaceFinding
from batchlab.core.format import format_learning_rate, format_list, format_loss, format_plural
from batchlab.words.sweep import describe_no_fit

WORTH_SAYING = 1.05
"""Factor between the fitted best and the cautious learning rate from which on both are given."""


def rate_conclusions(surface: SurfaceFinding) -> list[str]:
    """Sizes that were not tuned, one rate for all against each size's own, the exponent, fits, edges."""
    return _untuned(surface) + _one_rate(surface) + _exponent(surface) + _fits(surface) + _edges(surface)


def _untuned(surface: SurfaceFinding) -> list[str]:
    rows = [row for row in surface.rows if row.best is not None and not row.undertrained and len(row.cells) == 1]
    if not rows:
        return []
    rates = _rates(surface)
    if len(rates) == 1 and len(rows) > 1:
        return [
            f"Every batch size ran at one learning rate only, {format_learning_rate(rates.pop())}, which is the best "
            f"for some of them at most (n = {format_plural(len(rows), 'size')}). A study with --learning-rates over a "
            "range compares each size at its own best."
        ]
    return [
        f"Batch {format_list([row.global_batch_size for row in rows])} ran at one learning rate only (n = 1 "
        f"{'each' if len(rows) > 1 else 'rate'}), so the loss at the best learning rate is unknown there."
    ]


def _one_rate(surface: SurfaceFinding) -> list[str]:
    """What one learning rate for all sizes would have concluded, where that was trained too."""
    *shared, own = compare_rates(surface) or (None,)
    if own is None or len(_rates(surface)) < 2:
        return []
    worst = max(shared, key=lambda comparison: comparison.spread)
    where = f" at {format_learning_rate(worst.learning_rate)}" if worst.learning_rate else ""
    favoured = sorted({comparison.lowest for comparison in shared})
    who = f"batch {favoured[0]:,}" if len(favoured) == 1 else f"batch {format_list(favoured)}, depending on the rate,"
    return [
        f"With one learning rate for all sizes (n = {format_plural(len(shared), 'rate')} tried at every size), {who} "
        "would have had the lowest loss, and the sizes would have differed by up to "
        f"{format_loss(worst.spread)}{where}. At the best rate tried at each size they differ by "
        f"{format_loss(own.spread)}, and batch {own.lowest:,} is lowest (on the seeds that all cells share)."
    ]


def _rates(surface: SurfaceFinding) -> set[float]:
    return {cell.learning_rate for row in surface.rows for cell in row.cells}


def _exponent(surface: SurfaceFinding) -> list[str]:
    exponent = learning_rate_exponent(surface)
    if exponent is None:
        return _no_exponent(surface)
    slope = exponent.value
    low, high = slope.low or 0.0, slope.high or 0.0
    text = (
        f"The best learning rate scaled as batch^{slope.value:.2f} (95 % interval {low:.2f} to {high:.2f}, "
        f"n = {slope.n} sizes, {exponent.interpolated} of them interpolated)"
    )
    if low <= 0 <= high:
        text += "; this is compatible with no dependence on the batch size"
    elif low > 0.5:
        text += "; this is steeper than the square-root rule"
    elif high < 0.5:
        text += "; this is flatter than the square-root rule"
    return [f"{text}. {closest_rule(slope)}"]


def _no_exponent(surface: SurfaceFinding) -> list[str]:
    """Why no rule is judged, where enough batch sizes were tuned to expect one."""
    tuned = [row for row in surface.rows if row.best is not None and not row.undertrained and len(row.cells) > 1]
    if len(tuned) < MIN_SIZES:
        return []
    inside = sum(not row.edge for row in tuned)
    return [
        "How the best learning rate follows the batch size cannot be told: it lies inside the rates tried at n = "
        f"{inside} of {format_plural(len(tuned), 'batch size')}, and {MIN_SIZES} are needed."
    ]


RULES = {"keeping the learning rate": 0.0, "the square-root rule": 0.5, "the linear rule": 1.0}
"""Exponents of the batch size."""


def closest_rule(slope: Interval) -> str:
    """Which rule comes closest to the exponent, and which ones its interval excludes."""
    closest = min(RULES, key=lambda rule: abs(RULES[rule] - slope.value))
    low, high = slope.low or 0.0, slope.high or 0.0
    excluded = [rule for rule, exponent in RULES.items() if not low <= exponent <= high]
    text = f"Of {format_list([f'{rule} ({exponent:g})' for rule, exponent in RULES.items()])}, {closest} is closest"
    if not excluded:
        return f"{text}; the interval excludes none of them."
    return f"{text}; the interval excludes {format_list(excluded)}."


def _fits(surface: SurfaceFinding) -> list[str]:
    """Of the tied sizes: the learning rate to prefer between those tried, or the run that would help most."""
    return [text for row in surface.tied if (text := _fit(row, row.fit))]


def _fit(row: BatchRow, fit: LrFit) -> str:
    size = row.global_batch_size
    if fit.best_learning_rate and fit.cautious_learning_rate and fit.doublings:
        best = f"{format_learning_rate(fit.best_learning_rate)} ± {fit.doublings:.2g} doublings"
        n, exact = format_plural(len(fit.learning_rates), "learning rate"), len(fit.learning_rates) == MIN_CELLS
        text = f"At batch {size:,} a local fit puts the best learning rate at {best} (n = {n}"
        text += "; as many as the parabola has coefficients, so its shape is unchecked)" if exact else ")"
        if fit.best_learning_rate > WORTH_SAYING * fit.cautious_learning_rate:
            text += (
                f"; too high costs more than too low, so {format_learning_rate(fit.cautious_learning_rate)} has the "
                "lowest expected loss"
            )
        return text + "."
    if fit.no_fit and fit.next_learning_rate:
        return (
            f"At batch {size:,} no learning rate could be interpolated (n = {len(row.cells)} tried): "
            f"{describe_no_fit(fit.no_fit)}. One more run at {format_learning_rate(fit.next_learning_rate)} would help "
            "most."
        )
    return ""


def _edges(surface: SurfaceFinding) -> list[str]:
    edges = [row for row in surface.rows if row.edge and not row.undertrained]
    if not edges:
        return []
    sizes = format_list([row.global_batch_size for row in edges])
    return [
        f"The best learning rate of batch {sizes} is at the edge of those that trained (n = "
        f"{format_plural(len(edges), 'size')}), so a finer or wider grid may find a lower loss."
    ]
