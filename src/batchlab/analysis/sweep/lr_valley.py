"""How wide the valley of good learning rates is at each batch size, and whether it narrows with the batch size.

Near its lowest point the loss is taken for L + a·u², u in doublings of the learning rate, with a from the local fit
(analysis/sweep/learning_rate_fit.py). Rates within a loss d of the best are then u = ±√(d/a). The interval is that of
a, from the noise between seeds. The true valley is skewed: too high costs more than too low, so it ends sooner upwards
and later downwards than shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchlab.analysis.sweep.cost import CURVATURE, margin
from batchlab.analysis.sweep.noise import CONFIDENCE, Noise, pooled_noise, t_quantile
from batchlab.analysis.values import BatchRow, Interval, SurfaceFinding
from batchlab.analysis.verdict import TokenSlope

SHARE = 0.005
"""Of the best loss: what counts as good where no slope against tokens is known."""

MIN_SIZES = 3
"""Two widths always lie on a line."""


@dataclass(frozen=True, slots=True)
class Valley:
    """Learning rates from `low` to `high` are good at this size, a range of so many doublings; `rates` were fitted."""

    global_batch_size: int
    low: float
    high: float
    doublings: Interval
    rates: int
    error: float  # standard error of log2(doublings)


@dataclass(frozen=True, slots=True)
class Valleys:
    """`above`: nats above each size's best within which a learning rate is good. `in_tokens`: it is what the tolerance
    costs, else a share of the loss. `narrowing`: doublings of the width per doubling of the batch size."""

    above: float
    in_tokens: bool
    valleys: tuple[Valley, ...]
    narrowing: Interval | None


def lr_valleys(surface: SurfaceFinding, slope: TokenSlope | None, tolerance: float) -> Valleys | None:
    """Of the judged sizes with a valid local fit; None where there is none, or noise was not measured."""
    judged = [row for row in surface.rows if row.best is not None and not row.undertrained and row.fit.valid]
    noise = pooled_noise(cell for row in surface.rows if not row.undertrained for cell in row.cells)
    if noise is None or not judged or surface.best is None or surface.best.val_loss is None:
        return None
    above = margin(slope, tolerance, CURVATURE) if slope else SHARE * abs(surface.best.val_loss.value)
    found = tuple(valley for row in judged if (valley := _valley(row, above, noise)) is not None)
    return Valleys(above, slope is not None, found, _narrowing(found, noise)) if found and above > 0 else None


def _valley(row: BatchRow, above: float, noise: Noise) -> Valley | None:
    fit = row.fit
    if not fit.best_learning_rate or not fit.curvature:
        return None
    u = np.log2(np.array(fit.learning_rates) / fit.best_learning_rate)
    design = np.stack([np.ones_like(u), u, u**2], axis=1)
    error = math.sqrt(float(np.linalg.inv(design.T @ design)[2, 2])) * noise.sd
    half = math.sqrt(above / fit.curvature)
    reach = t_quantile(0.5 + CONFIDENCE / 2, noise.df) * error
    widest = 2 * math.sqrt(above / (fit.curvature - reach)) if reach < fit.curvature else None
    narrowest = 2 * math.sqrt(above / (fit.curvature + reach))
    best = fit.best_learning_rate
    doublings = Interval(2 * half, narrowest, widest, len(fit.learning_rates))
    return Valley(
        row.global_batch_size,
        best * 2**-half,
        best * 2**half,
        doublings,
        len(fit.learning_rates),
        error / (2 * fit.curvature * math.log(2)),
    )


def _narrowing(valleys: Sequence[Valley], noise: Noise) -> Interval | None:
    """Weighted least squares of log2(width) on log2(batch), from sizes whose width is known to within a factor."""
    known = [valley for valley in valleys if valley.doublings.high is not None and valley.error > 0]
    if len(known) < MIN_SIZES:
        return None
    x = np.log2([valley.global_batch_size for valley in known])
    y = np.log2([valley.doublings.value for valley in known])
    weight = 1 / np.array([valley.error for valley in known]) ** 2
    centred = x - float((weight * x).sum() / weight.sum())
    spread = float((weight * centred**2).sum())
    value = float((weight * centred * y).sum() / spread)
    half = t_quantile(0.5 + CONFIDENCE / 2, noise.df) / math.sqrt(spread)
    return Interval(value, value - half, value + half, len(known))
