"""What the product does not use: the textbook curve, and straight lines between the sizes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

Vector = npt.NDArray[np.float64]


def fit_textbook(batch: Vector, steps: Vector) -> tuple[float, float, float]:
    """(S_min, B_crit, largest residual of ln S) of S = S_min (1 + B_crit/B), by least squares in ln S."""
    log_batch, log_steps = np.log(batch), np.log(steps)

    def residuals(u: float) -> Vector:
        rest = log_steps - np.logaddexp(0.0, u - log_batch)
        return np.asarray(rest - rest.mean())

    bounds = (float(log_batch.min()) - 6, float(log_batch.max()) + 6)
    best = minimize_scalar(lambda u: float(residuals(u) @ residuals(u)), bounds=bounds, method="bounded").x
    level = float(np.mean(log_steps - np.logaddexp(0.0, best - log_batch)))
    return math.exp(level), math.exp(best), float(np.max(np.abs(residuals(best))))


def read_off(batch: Vector, steps: Vector) -> float | None:
    """The largest batch size with up to 20 % more samples than the first, by straight lines in ln E over ln B."""
    log_batch, excess = np.log(batch), np.log(batch * steps) - math.log(1.2 * batch[0] * steps[0])
    above = np.flatnonzero(excess > 0)
    if not len(above) or above[0] == 0:
        return None
    i = int(above[0])
    share = -excess[i - 1] / (excess[i] - excess[i - 1])
    return math.exp(float(log_batch[i - 1] + share * (log_batch[i] - log_batch[i - 1])))
