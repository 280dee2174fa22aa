"""The noise scale from the best learning rate of a single step at several batch sizes.

    ε(B) = ε_max / (1 + B_noise / B)

Source: McCandlish et al. 2018 (arXiv:1812.06162), eq. 2.5. An independent check of the noise scale that gradient norms
give; it needs a line search at every batch size, so no study runs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchlab.analysis.critical.ratio import Vector
from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.values import Interval
from batchlab.core.errors import InputError


@dataclass(frozen=True, slots=True)
class OptimalStep:
    """Best learning rate of a single step against batch size: ε(B) = ε_max / (1 + B_noise / B)."""

    largest: Interval
    noise_scale: Interval
    noise_scale_error: float  # standard error
    largest_residual: float  # relative to `largest`


def best_step(step_sizes: Sequence[float], loss_changes: Sequence[float]) -> float | None:
    """Step size of the lowest loss: the vertex of the parabola through the best one tried and its two neighbours.

    None where the best one is the smallest or largest tried, because the optimum is then not bracketed.
    """
    order = np.argsort(np.asarray(step_sizes, dtype=np.float64))
    x = np.asarray(step_sizes, dtype=np.float64)[order]
    y = np.asarray(loss_changes, dtype=np.float64)[order]
    best = int(np.argmin(y))
    if best in (0, len(x) - 1):
        return None
    near = slice(best - 1, best + 2)
    curvature, slope, _ = np.polyfit(x[near] - x[best], y[near], 2)
    return float(x[best] - slope / (2 * curvature))


def fit_optimal_step(batch_sizes: Sequence[float], step_sizes: Sequence[float]) -> OptimalStep:
    """Least-squares fit of ε(B) to the best step size of each batch size.

    Intervals come from the residuals of the fit, with Student's t and n − 2 degrees of freedom.

    Raises InputError for fewer than 4 batch sizes, or where the best step does not grow with the batch size.
    """
    from scipy.optimize import curve_fit

    b, e = np.asarray(batch_sizes, dtype=np.float64), np.asarray(step_sizes, dtype=np.float64)
    if len(b) < 4:
        raise InputError(f"{len(b)} batch sizes are too few to fit two parameters with intervals; measure at least 4.")
    if np.corrcoef(np.log(b), np.log(e))[0, 1] <= 0:
        raise InputError("The best step size does not grow with the batch size, so it shows no noise scale.")

    def law(batch: Vector, log_largest: float, log_noise: float) -> Vector:
        return np.asarray(np.exp(log_largest) / (1 + np.exp(log_noise) / batch), dtype=np.float64)

    start = (math.log(float(e.max())), math.log(float(np.median(b))))
    found, covariance = curve_fit(law, b, e, p0=start)
    largest, noise = (float(v) for v in np.exp(found))
    errors = np.sqrt(np.diag(covariance))
    t = t_quantile(0.5 + CONFIDENCE / 2, len(b) - 2)
    residual = float(np.max(np.abs(law(b, *found) - e)) / largest)

    def interval(value: float, log_error: float) -> Interval:
        return Interval(value, value * math.exp(-t * log_error), value * math.exp(t * log_error), len(b))

    return OptimalStep(interval(largest, errors[0]), interval(noise, errors[1]), noise * float(errors[1]), residual)
