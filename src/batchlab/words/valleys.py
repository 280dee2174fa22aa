"""Sentences about the range of good learning rates at each batch size."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.lr_valley import Valley, Valleys, lr_valleys
from batchlab.core.format import format_learning_rate, format_loss, format_percent


def valley_conclusions(found: Findings) -> list[str]:
    """The range per batch size, and whether it narrows; nothing where noise or the shape is unknown."""
    tolerance = found.experiment.sweep.tolerance
    valleys = lr_valleys(found.surface, found.slope, tolerance) if found.surface else None
    if valleys is None:
        return []
    worth = f" ({format_percent(tolerance)} of the {found.experiment.unit.value})" if valleys.in_tokens else ""
    ranges = "; ".join(map(_range, valleys.valleys))
    text = (
        f"Learning rates within {format_loss(valleys.above)}{worth} of the best of their size, by local fits: {ranges}."
    )
    return [text, *_narrowing(valleys)]


def stable_rates_note(found: Findings) -> str:
    """How to read the ranges, or why there are none."""
    surface, tolerance = found.surface, found.experiment.sweep.tolerance
    if surface is None or surface.best is None:
        return ""
    if surface.noise_sd is None:
        return "Unknown: no seed was repeated, so how far a learning rate may be from the best is not known."
    valleys = lr_valleys(surface, found.slope, tolerance)
    if valleys is None:
        return "Unknown: at no batch size could a curve be fitted around the best learning rate."
    costs = f" and cost at most {format_percent(tolerance)}" if valleys.in_tokens else ""
    return " ".join(
        [
            f"Learning rates in a range are within {format_loss(valleys.above)} of the best of their size{costs}, by "
            "local fits. Too high costs more than too low, so stay in the lower half.",
            *_narrowing(valleys),
        ]
    )


def _range(valley: Valley) -> str:
    low, high = format_learning_rate(valley.low), format_learning_rate(valley.high)
    least, most = valley.doublings.low, valley.doublings.high
    limits = f"{least or 0:.2g} to {most:.2g}" if most is not None else f"at least {least or 0:.2g}"
    return (
        f"batch {valley.global_batch_size:,} from {low} to {high}, {valley.doublings.value:.2g} doublings (95 %: "
        f"{limits}; n = {valley.rates} rates)"
    )


def _exponent(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _narrowing(valleys: Valleys) -> list[str]:
    change = valleys.narrowing
    if change is None or change.low is None or change.high is None:
        return []
    how = "does not measurably change with the batch size"
    if change.high < 0:
        how = "narrows as the batch size grows"
    elif change.low > 0:
        how = "widens as the batch size grows"
    return [
        f"The range of good learning rates {how}: its width scaled as batch^{_exponent(change.value)} (95 % "
        f"interval {_exponent(change.low)} to {_exponent(change.high)}, n = {change.n} sizes)."
    ]
