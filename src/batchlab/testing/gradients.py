"""Contract test for Trainables that measure the gradient norms of their micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.nested import batch_size, select
from batchlab.core.protocols import Batch, Inspectable, MeasuresGradients
from batchlab.core.record import NoGradientSamples
from batchlab.testing.requirement import require


def check_measured_gradients(make: Callable[[], MeasuresGradients], batch: Batch, *, tolerance: float = 1e-5) -> None:
    """Check that measuring does not change a step, and that the norms are correct. `batch` needs at least 4 samples.

    If the Trainable is Inspectable, the norms are also compared with those of the gradients, without dropout. Raises
    AssertionError for the first violated requirement.
    """
    half = batch_size(batch) // 2 + 1  # unequal on purpose
    parts = [select(batch, slice(half)), select(batch, slice(half, None))]
    plain, measured = make(), make()
    weight = 1.0 / sum(plain.count(part) for part in parts)
    plain.init(0)
    measured.init(0)
    for part in parts:
        plain.accumulate(part, weight)
    norms = measured.accumulate_measured(parts, weight, "all")
    if isinstance(norms, NoGradientSamples):
        return
    one, other = plain.apply(1e-2), measured.apply(1e-2)
    require(float(one.loss) == float(other.loss), "measuring changed the loss of a step")
    require(float(one.grad_norm) == float(other.grad_norm), "measuring changed the gradient of a step")
    require(len(norms.squared) == len(parts), "there must be one squared norm per micro-batch")
    require(
        math.isclose(float(norms.squared_sum), float(one.grad_norm) ** 2, rel_tol=100 * tolerance),
        f"squared_sum is {float(norms.squared_sum)!r}, but the gradient's squared norm {float(one.grad_norm) ** 2!r}",
    )
    if isinstance(measured, Inspectable):
        _check_against_gradients(measured, parts, weight, tolerance)


def _check_against_gradients(trainable: Any, parts: list[Batch], weight: float, tolerance: float) -> None:
    trainable.init(0)
    trainable.without_randomness()
    added = []
    for part in parts:
        trainable.init(0)
        trainable.without_randomness()
        trainable.accumulate(part, weight)
        added.append(_flat(trainable))
    trainable.init(0)
    trainable.without_randomness()
    norms = trainable.accumulate_measured(parts, weight, "all")
    for value, vector in zip(norms.squared, added, strict=True):
        require(
            math.isclose(float(value), float(vector @ vector), rel_tol=100 * tolerance),
            f"a micro-batch has squared norm {float(value)!r}, but its gradient {float(vector @ vector)!r}",
        )
    if norms.signs is None:
        return
    u, v = added
    share = trainable.count(parts[-1]) * weight
    expected = (np.abs(u / (1 - share) - v / share).sum(), np.sign(u) @ v / share, np.abs(u + v).sum())
    for name, value, truth in zip(("difference", "agreement", "absolute"), norms.signs, expected, strict=True):
        require(
            math.isclose(float(value), float(truth), rel_tol=1000 * tolerance, abs_tol=1000 * tolerance),
            f"{name} is {float(value)!r}, but {float(truth)!r} when computed from the gradients",
        )


def _flat(trainable: Inspectable) -> npt.NDArray[np.float64]:
    gradients = trainable.gradients()
    return np.concatenate([np.ravel(gradients[name]).astype(np.float64) for name in sorted(gradients)])
