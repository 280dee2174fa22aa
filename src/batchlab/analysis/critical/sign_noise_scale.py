"""The noise scale of updates that take the sign of the gradient, as Adam's nearly do: (‖σ‖₁ / ‖G‖₁)².

Source of the ratio: Naganuma et al. 2026 (arXiv:2602.03001). σ: standard deviation of one sample's gradient in each
coordinate, G: the true gradient. ‖G‖₁ has no unbiased estimate. Σ|ḡᵢ| is on average above it and the agreement of two
independent parts of the batch below it, so the first gives a lower and the second an upper estimate; they meet as
batches grow. ‖σ‖₁ is corrected for small samples by the mean of a χ variable over its root mean square.

Limits. That correction is exact where a micro-batch's gradient is Gaussian in each coordinate; the rows of an embedding
that few samples touch are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

import numpy as np

from batchlab.analysis.critical.ratio import MIN_BLOCKS, block_means, fieller
from batchlab.core.errors import InputError


@dataclass(frozen=True, slots=True)
class SignNorms:
    """What one sampled step logs for sign updates, all in the 1-norm over parameters.

    `spread`: Σᵢ √(Σ_k b_k (g_ki − ḡᵢ)² / (K − 1)); `mean`: Σᵢ |ḡᵢ|; `agreement`: Σᵢ sign(aᵢ)·cᵢ, where a is the mean
    gradient of some of the micro-batches and c that of the others, e.g. of all but the last and of the last.
    """

    micro_batches: int
    spread: float
    mean: float
    agreement: float
    tokens: float = 0.0

    @property
    def finite(self) -> bool:
        """Whether the step did not overflow."""
        return all(map(math.isfinite, (self.spread, self.mean, self.agreement)))


class SignNoiseReason(Enum):
    """Why the bracket has no upper limit, or no limit at all."""

    TOO_FEW_STEPS = auto()
    NOTHING_DISTINGUISHABLE = auto()  # neither the gradient nor its noise from 0
    SIGNS_DISAGREE = auto()  # independent parts of a batch do not agree on the signs of the gradient


@dataclass(frozen=True, slots=True)
class SignNoiseScale:
    """(‖σ‖₁ / ‖G‖₁)² in samples: the batch size at which a sign update is as much noise as gradient.

    A bracket, because ‖G‖₁ is bracketed: `low` and `high` contain the value with at least 95 % confidence, `nearest`
    holds the two estimates themselves. `high` None: no upper limit.
    """

    status: Literal["measured", "at_least", "undetermined"]
    low: float | None
    high: float | None
    nearest: tuple[float, float] | None
    steps: int
    overflowed: int
    blocks: int
    reason: SignNoiseReason | None = None


def sign_noise_scale(steps: Sequence[SignNorms], *, block_length: int | None = None) -> SignNoiseScale:
    """The bracket over the sampled steps, which are averaged in blocks as `noise_scale` does.

    Raises InputError where a step has a single micro-batch.
    """
    kept = [norms for norms in steps if norms.finite]
    overflowed = len(steps) - len(kept)
    if any(norms.micro_batches < 2 for norms in kept):
        raise InputError("The noise scale needs at least 2 micro-batches in a step; split a single one in two.")
    logged = np.array([(s.spread / small_sample_factor(s.micro_batches), s.mean, s.agreement) for s in kept])
    blocks = block_means(logged.reshape(-1, 3), block_length)
    counts = (len(kept), overflowed, len(blocks))
    if len(blocks) < MIN_BLOCKS:
        return SignNoiseScale("undetermined", None, None, None, *counts, SignNoiseReason.TOO_FEW_STEPS)
    below, above = fieller(blocks[:, 0], blocks[:, 1]), fieller(blocks[:, 0], blocks[:, 2])
    if below.low is None or below.low <= 0:
        return SignNoiseScale("undetermined", None, None, None, *counts, SignNoiseReason.NOTHING_DISTINGUISHABLE)
    if above.high is None:
        return SignNoiseScale("at_least", below.low**2, None, None, *counts, SignNoiseReason.SIGNS_DISAGREE)
    nearest = (below.value**2, max(above.value, below.value) ** 2)
    return SignNoiseScale("measured", below.low**2, above.high**2, nearest, *counts)


def small_sample_factor(k: int) -> float:
    """E √(χ²_{k−1} / (k − 1)): how far the standard deviation of k Gaussian values falls short on average."""
    return math.sqrt(2 / (k - 1)) * math.exp(math.lgamma(k / 2) - math.lgamma((k - 1) / 2))
