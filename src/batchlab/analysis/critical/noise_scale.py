"""The gradient noise scale, from norms that one training run logs at sampled steps.

    B_simple = tr Σ / |G|²          Σ: covariance of one sample's gradient, G: the true gradient

Source: McCandlish et al. 2018 (arXiv:1812.06162), eq. 2.9 and appendix A. At a sampled step with K micro-batches of b_k
samples, mean gradients g_k and overall mean ḡ over B = Σ b_k samples,

    T = (Σ b_k |g_k|² − B |ḡ|²) / (K − 1)        E T = tr Σ, also for unequal b_k
    Q = |ḡ|² − T / B                             E Q = |G|²

Each is unbiased, but their quotient at one step is not: the estimate is (Σ T) / (Σ Q) over the sampled steps, a ratio
of averages. All K micro-batches enter T; using only one of them would increase its variance about twelvefold at K = 8.

Limits. B_simple is the critical batch size only for plain SGD on a quadratic with curvature H ∝ I; for large language
models it came out far below measured critical batch sizes (Merrill et al. 2025, arXiv:2505.23971). It changes during
training, so a single number for a run is an average over its sampled steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

import numpy as np

from batchlab.analysis.critical.ratio import MIN_BLOCKS, block_means, bootstrap_ratio, fieller, tail_allowance
from batchlab.analysis.values import Interval
from batchlab.core.errors import InputError


@dataclass(frozen=True, slots=True)
class GradientNorms:
    """What one sampled step logs. The gradient of a micro-batch is the mean over its samples, before clipping.

    `micro_batch_sizes` counts samples (or targets, where losses are averaged over targets) and may be unequal;
    `squared_norms` are |g_k|²; `mean_squared_norm` is |ḡ|² with ḡ = Σ b_k g_k / Σ b_k. The caller undoes loss scaling
    and the division by the number of accumulation steps. Norms that are not finite mark an overflowed step, which is
    left out and counted. `weights` (sum 1) are given where ḡ = Σ w_k g_k weights micro-batches otherwise than by their
    sizes, as a mean of means does.
    """

    micro_batch_sizes: tuple[float, ...]
    squared_norms: tuple[float, ...]
    mean_squared_norm: float
    tokens: float = 0.0  # seen when the step was taken
    weights: tuple[float, ...] | None = None

    @property
    def finite(self) -> bool:
        """Whether the step did not overflow."""
        return math.isfinite(self.mean_squared_norm) and all(map(math.isfinite, self.squared_norms))


class NoiseReason(Enum):
    """Why the noise scale has no upper limit, or no limit at all."""

    TOO_FEW_STEPS = auto()
    GRADIENT_WITHIN_NOISE = auto()  # |G|² may be 0 as far as these steps show


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """B_simple in samples (targets), averaged over the sampled steps.

    `measured`: value and interval are known. `at_least`: |G|² is not distinguishable from 0, so only a lower limit is
    known. `undetermined`: not even that. `value` is None unless measured.
    """

    status: Literal["measured", "at_least", "undetermined"]
    value: Interval | None
    at_least: float | None
    trace: float | None  # mean of T, the estimate of tr Σ
    squared_gradient: float | None  # mean of Q, the estimate of |G|²
    steps: int
    overflowed: int
    blocks: int  # of consecutive steps, which count as independent
    tokens_from: float
    tokens_to: float
    method: Literal["fieller", "bootstrap"]
    reason: NoiseReason | None = None


def unbiased_parts(norms: GradientNorms) -> tuple[float, float]:
    """(T, Q) of one step: unbiased estimates of tr Σ and |G|².

    Raises InputError for a single micro-batch, whose noise is not distinguishable from its gradient, and for lengths
    that differ.
    """
    sizes, squares = norms.micro_batch_sizes, norms.squared_norms
    if len(sizes) != len(squares):
        raise InputError(f"{len(sizes)} micro-batch sizes came with {len(squares)} squared norms; each needs its own.")
    if len(sizes) < 2:
        raise InputError(
            "The noise scale needs at least 2 micro-batches in a step, and this one has 1. "
            + (
                "One sample cannot be split: accumulate at least 2 in the sampled steps."
                if sum(sizes) <= 1
                else "Split it in two in the sampled steps, or accumulate at least 2."
            )
        )
    if min(sizes) <= 0:
        raise InputError("A micro-batch of no samples has no mean gradient; leave it out of the sampled step.")
    total = math.fsum(sizes)
    weights = norms.weights or tuple(size / total for size in sizes)
    # E |g_k|² = |G|² + tr Σ/b_k and E |ḡ|² = |G|² + tr Σ · Σ w_k²/b_k, which for w_k = b_k/B are the formulas above
    within = math.fsum(w * q for w, q in zip(weights, squares, strict=True)) - norms.mean_squared_norm
    trace = within / math.fsum(w * (1 - w) / b for w, b in zip(weights, sizes, strict=True))
    return trace, norms.mean_squared_norm - trace * math.fsum(w * w / b for w, b in zip(weights, sizes, strict=True))


def noise_scale(
    steps: Sequence[GradientNorms],
    *,
    block_length: int | None = None,
    method: Literal["fieller", "bootstrap"] = "fieller",
    seed: int = 0,
) -> NoiseScale:
    """B_simple over the sampled steps with a 95 % interval.

    Consecutive steps are averaged in blocks of `block_length` (by default the cube root of their number), because the
    parameters of neighbouring steps are nearly the same; blocks then count as independent. Steps count equally. Where T
    has a heavy tail, the upper limit is raised by what the sample is likely to lack of it. The value is not.
    """
    kept = [norms for norms in steps if norms.finite]
    overflowed = len(steps) - len(kept)
    parts = np.array([unbiased_parts(norms) for norms in kept], dtype=np.float64).reshape(-1, 2)
    span = (min((s.tokens for s in steps), default=0.0), max((s.tokens for s in steps), default=0.0))
    blocks = block_means(parts, block_length)

    def finding(
        status: Literal["measured", "at_least", "undetermined"],
        value: Interval | None = None,
        at_least: float | None = None,
        reason: NoiseReason | None = None,
    ) -> NoiseScale:
        trace, square = (float(parts[:, 0].mean()), float(parts[:, 1].mean())) if len(parts) else (None, None)
        counts = (len(kept), overflowed, len(blocks))
        return NoiseScale(status, value, at_least, trace, square, *counts, *span, method, reason)

    if len(blocks) < MIN_BLOCKS:
        return finding("undetermined", reason=NoiseReason.TOO_FEW_STEPS)
    ratio = fieller(blocks[:, 0], blocks[:, 1])
    if ratio.low is None or ratio.high is None:
        if ratio.low is None or ratio.low <= 0:
            return finding("undetermined", reason=NoiseReason.GRADIENT_WITHIN_NOISE)
        return finding("at_least", at_least=ratio.low, reason=NoiseReason.GRADIENT_WITHIN_NOISE)
    low, high = (ratio.low, ratio.high) if method == "fieller" else bootstrap_ratio(blocks, seed)
    high *= tail_allowance(parts[:, 0])
    return finding("measured", value=Interval(max(ratio.value, 0.0), max(low, 0.0), max(high, 0.0), len(kept)))


def noise_scale_series(steps: Sequence[GradientNorms], window: int) -> tuple[NoiseScale, ...]:
    """One noise scale per `window` consecutive sampled steps; a last window of less than half joins the one before."""
    if window < MIN_BLOCKS:
        raise InputError(f"A window of {window} sampled steps is too short: an interval needs at least {MIN_BLOCKS}.")
    starts = list(range(0, len(steps), window))
    if len(starts) > 1 and len(steps) - starts[-1] < window / 2:
        starts.pop()
    ends = [*starts[1:], len(steps)]
    return tuple(noise_scale(steps[start:end], block_length=1) for start, end in zip(starts, ends, strict=True))
