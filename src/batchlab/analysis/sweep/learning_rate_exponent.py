"""How the best learning rate moves with the batch size: the exponent of a power law.

A single power law is a summary: public sweeps rise as batch^0.2 to batch^0.9 and flatten at large batches.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.values import Interval, SurfaceFinding

MIN_SIZES = 3
"""Two points always lie on a line."""


@dataclass(frozen=True, slots=True)
class LearningRateExponent:
    """Best learning rate ∝ batch^value over n batch sizes; the interval is the regression's own."""

    value: Interval
    interpolated: int  # of the n, those whose best learning rate is a fitted vertex, not a grid value


def learning_rate_exponent(surface: SurfaceFinding) -> LearningRateExponent | None:
    """Slope of log2(best learning rate) over log2(batch), from judged sizes whose best is inside their grid.

    Fitted vertex where the fit is valid, else the grid's value. None below three sizes. The interval assumes that the
    errors of the sizes are independent.
    """
    rows = [row for row in surface.rows if row.best and not row.undertrained and not row.edge and len(row.cells) > 1]
    xs, ys, interpolated = [], [], 0
    for row in rows:
        rate = row.fit.best_learning_rate if row.fit.valid else row.best.learning_rate if row.best else None
        interpolated += row.fit.valid
        if rate is not None:
            xs.append(math.log2(row.global_batch_size))
            ys.append(math.log2(rate))
    n = len(xs)
    if n < MIN_SIZES:
        return None
    slope, intercept = statistics.linear_regression(xs, ys)
    mean_x = statistics.fmean(xs)
    residual = sum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    error = math.sqrt(residual / (n - 2) / sum((x - mean_x) ** 2 for x in xs))
    half = t_quantile(0.5 + CONFIDENCE / 2, n - 2) * error
    return LearningRateExponent(Interval(slope, slope - half, slope + half, n), interpolated)
