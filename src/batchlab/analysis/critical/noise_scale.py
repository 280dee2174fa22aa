"""The gradient noise scale, from norms that one training run logs at sampled steps.

    B_simple = tr Σ / |G|²          Σ: covariance of one sample's gradient, G: the true gradient

Source: McCandlish et al. 2018 (arXiv:1812.06162), eq. 2.9 and appendix A. At a sampled step with K micro-batches of b_k
samples, mean gradients g_k and overall mean ḡ over B = Σ b_k samples,

    T = (Σ b_k |g_k|² − B |ḡ|²) / (K − 1)        E T = tr Σ, also for unequal b_k
    Q = |ḡ|² − T / B                             E Q = |G|²

Each is unbiased, their quotient at one step is not: the estimate is (Σ T) / (Σ Q) over the sampled steps, a ratio of
averages. All K micro-batches enter T; one of them alone would multiply its variance about twelvefold at K = 8.

Limits. B_simple is the critical batch size only for plain SGD on a quadratic with curvature H ∝ I; for large language
models it came out far below measured critical batches (Merrill et al. 2025, arXiv:2505.23971). It changes during
training, so a single number for a run is an average over its sampled steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.values import Interval
from batchlab.core.errors import InputError

Vector = npt.NDArray[np.float64]

MIN_BLOCKS = 4
"""Fewer independent blocks than this leave the interval to Student's t alone, which is then tens of times too wide."""
BOOTSTRAPS = 2000


@dataclass(frozen=True, slots=True)
class GradientNorms:
    """What one sampled step logs. The gradient of a micro-batch is the mean over its samples, before clipping.

    `micro_batch_sizes` counts samples (or targets, where losses are averaged over targets) and may be unequal;
    `squared_norms` are |g_k|²; `mean_squared_norm` is |ḡ|² with ḡ = Σ b_k g_k / Σ b_k. Loss scaling and division by
    the number of accumulation steps are undone by the caller. Not finite: an overflowed step, left out and counted.
    `weights` (sum 1) where ḡ = Σ w_k g_k weighs micro-batches otherwise than by their sizes, as a mean of means does.
    """

    micro_batch_sizes: tuple[float, ...]
    squared_norms: tuple[float, ...]
    mean_squared_norm: float
    tokens: float = 0.0  # seen when the step was taken
    weights: tuple[float, ...] | None = None

    @property
    def finite(self) -> bool:
        return math.isfinite(self.mean_squared_norm) and all(map(math.isfinite, self.squared_norms))


@dataclass(frozen=True, slots=True)
class SignNorms:
    """What one sampled step logs for the sign-update variant, all in the 1-norm over parameters.

    `spread`: Σᵢ √(Σ_k b_k (g_ki − ḡᵢ)² / (K − 1)); `mean`: Σᵢ |ḡᵢ|; `agreement`: Σᵢ sign(aᵢ)·cᵢ, where a is the mean
    gradient of some of the micro-batches and c that of the others (all but the last, and the last, will do).
    """

    micro_batches: int
    spread: float
    mean: float
    agreement: float
    tokens: float = 0.0

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, (self.spread, self.mean, self.agreement)))


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """B_simple in samples (targets), averaged over the sampled steps.

    `measured`: value and interval stand. `at_least`: |G|² is not separated from 0, so only a lower limit is known.
    `undetermined`: not even that. `value` holds None unless measured.
    """

    status: Literal["measured", "at_least", "undetermined"]
    value: Interval | None
    at_least: float | None
    trace: float | None  # mean of T, the estimate of tr Σ
    squared_gradient: float | None  # mean of Q, the estimate of |G|²
    steps: int
    overflowed: int
    tokens_from: float
    tokens_to: float
    method: Literal["fieller", "bootstrap"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SignNoiseScale:
    """(‖σ‖₁ / ‖G‖₁)² in samples: the batch at which a sign update is as much noise as gradient.

    ‖G‖₁ has no unbiased estimate, but two that bracket it, so this is a bracket: `low` and `high` contain the value
    with at least 95 % confidence, `nearest` are the bracket's own two estimates. `high` None: no upper limit.
    """

    status: Literal["measured", "at_least", "undetermined"]
    low: float | None
    high: float | None
    nearest: tuple[float, float] | None
    steps: int
    overflowed: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """The θ that E y = θ E x does not contradict. `high` None: x is not separated from 0; then all θ ≥ low remain
    possible, and where `low` is None too, every θ does."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class OptimalStep:
    """Best learning rate of a single step against batch size: ε(B) = ε_max / (1 + B_noise / B)."""

    largest: Interval
    noise_scale: Interval
    noise_scale_error: float  # standard error
    largest_residual: float  # relative to `largest`


def unbiased_parts(norms: GradientNorms) -> tuple[float, float]:
    """(T, Q) of one step: unbiased estimates of tr Σ and |G|².

    Errors: InputError for a single micro-batch, whose noise cannot be told from its gradient, or for lengths that
    differ.
    """
    sizes, squares = norms.micro_batch_sizes, norms.squared_norms
    if len(sizes) != len(squares):
        raise InputError(f"{len(sizes)} micro-batch sizes came with {len(squares)} squared norms; each needs its own.")
    if len(sizes) < 2:
        advice = (
            "One sample per step cannot be split: sample this step with accumulation of at least 2."
            if sum(sizes) <= 1
            else "Split it in two for the sampled steps, or accumulate at least 2."
        )
        raise InputError(f"The noise scale needs at least 2 micro-batches in a step, and this one has 1. {advice}")
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

    Consecutive steps are averaged in blocks of `block_length` (the cube root of their number by default), because the
    parameters of neighbouring steps are nearly the same; blocks then count as independent. Steps count equally.
    """
    kept = [norms for norms in steps if norms.finite]
    overflowed = len(steps) - len(kept)
    parts = np.array([unbiased_parts(norms) for norms in kept], dtype=np.float64).reshape(-1, 2)
    span = (min((s.tokens for s in steps), default=0.0), max((s.tokens for s in steps), default=0.0))

    def finding(
        status: Literal["measured", "at_least", "undetermined"],
        value: Interval | None = None,
        at_least: float | None = None,
        reason: str = "",
    ) -> NoiseScale:
        trace, square = (float(parts[:, 0].mean()), float(parts[:, 1].mean())) if len(parts) else (None, None)
        return NoiseScale(status, value, at_least, trace, square, len(kept), overflowed, *span, method, reason)

    blocks = block_means(parts, block_length)
    if len(blocks) < MIN_BLOCKS:
        missed = f" ({overflowed} overflowed)" if overflowed else ""
        return finding(
            "undetermined",
            reason=f"{len(kept)} usable steps{missed} make {len(blocks)} blocks, and an interval needs {MIN_BLOCKS}: "
            "sample more steps.",
        )
    ratio = fieller(blocks[:, 0], blocks[:, 1])
    if ratio.low is None or ratio.high is None:
        why = "the gradient is not separated from its own noise: |G|² may be 0 as far as these steps can tell"
        if ratio.low is None or ratio.low <= 0:
            return finding("undetermined", reason=f"{why}. Sample more steps, or larger batches.")
        return finding("at_least", at_least=ratio.low, reason=f"{why}, so there is no upper limit.")
    low, high = (ratio.low, ratio.high) if method == "fieller" else bootstrap_ratio(blocks, seed)
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


def sign_noise_scale(steps: Sequence[SignNorms], *, block_length: int | None = None) -> SignNoiseScale:
    """(‖σ‖₁ / ‖G‖₁)², the variant for updates that take the gradient's sign, as Adam's nearly do.

    Source of the ratio: Naganuma et al. 2026 (arXiv:2602.03001). Σ|ḡᵢ| is on average above ‖G‖₁ and the agreement of
    two independent parts of the batch below it, so the first gives a lower and the second an upper estimate; they
    meet as batches grow. ‖σ‖₁ is divided by the mean of a χ variable over its root-mean-square, exact where a
    micro-batch's gradient is Gaussian per coordinate; rows of an embedding that few samples touch are not.
    """
    kept = [norms for norms in steps if norms.finite]
    overflowed = len(steps) - len(kept)
    if any(norms.micro_batches < 2 for norms in kept):
        raise InputError("The noise scale needs at least 2 micro-batches in a step; split a lone one in two.")
    logged = np.array([(s.spread / small_sample_factor(s.micro_batches), s.mean, s.agreement) for s in kept])
    blocks = block_means(logged.reshape(-1, 3), block_length)
    if len(blocks) < MIN_BLOCKS:
        reason = f"{len(kept)} usable steps make {len(blocks)} blocks, and an interval needs {MIN_BLOCKS}."
        return SignNoiseScale("undetermined", None, None, None, len(kept), overflowed, reason)
    below, above = fieller(blocks[:, 0], blocks[:, 1]), fieller(blocks[:, 0], blocks[:, 2])
    if below.low is None or below.low <= 0:
        reason = "neither gradient nor noise is separated from 0; sample more steps."
        return SignNoiseScale("undetermined", None, None, None, len(kept), overflowed, reason)
    if above.high is None:
        reason = "independent halves of a batch do not agree on the gradient's signs, so there is no upper limit."
        return SignNoiseScale("at_least", below.low**2, None, None, len(kept), overflowed, reason)
    nearest = (below.value**2, max(above.value, below.value) ** 2)
    return SignNoiseScale("measured", below.low**2, above.high**2, nearest, len(kept), overflowed)


def small_sample_factor(k: int) -> float:
    """E √(χ²_{k−1} / (k − 1)): how far a standard deviation from k Gaussian values falls short on average."""
    return math.sqrt(2 / (k - 1)) * math.exp(math.lgamma(k / 2) - math.lgamma((k - 1) / 2))


def block_means(rows: Vector, block_length: int | None) -> Vector:
    """Means over blocks of consecutive rows; rows left over at the start, fewer than a block, join the first one."""
    n = len(rows)
    if n == 0:
        return rows
    length = max(1, round(n ** (1 / 3))) if block_length is None else block_length
    length = min(length, n)
    count = n // length
    first = n - (count - 1) * length
    return np.vstack([rows[:first].mean(axis=0), rows[first:].reshape(count - 1, length, *rows.shape[1:]).mean(axis=1)])


def fieller(y: Vector, x: Vector) -> RatioInterval:
    """95 % limits of E y / E x from pairs: the θ at which the mean of y − θx is within t standard errors of 0.

    Source: Fieller 1954. Exact for Gaussian pairs however uncertain x is; unbounded, as it must be, when the mean of x
    is not separated from 0. Meant for y ≥ 0: of an unbounded set only the part above 0 is told.
    """
    n = len(x)
    t2 = t_quantile(0.5 + CONFIDENCE / 2, n - 1) ** 2
    mean_y, mean_x = float(y.mean()), float(x.mean())
    covariance = np.cov(np.vstack([y, x]), ddof=1) / n
    # (ȳ − θx̄)² ≤ t² Var(ȳ − θx̄) is aθ² − 2bθ + c ≤ 0.
    a = mean_x**2 - t2 * float(covariance[1, 1])
    b = mean_x * mean_y - t2 * float(covariance[0, 1])
    c = mean_y**2 - t2 * float(covariance[0, 0])
    value = mean_y / mean_x if mean_x else math.inf
    root = b * b - a * c
    if a > 0 and mean_x > 0:
        half = math.sqrt(max(root, 0.0))
        return RatioInterval(value, (b - half) / a, (b + half) / a)
    if a >= 0 or root <= 0 or c <= 0:  # x below 0, or no θ is excluded, or 0 itself is possible
        return RatioInterval(value, None, None)
    larger = max((b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a)
    return RatioInterval(value, larger if larger > 0 else None, None)


def bootstrap_ratio(blocks: Vector, seed: int = 0) -> tuple[float, float]:
    """95 % percentile limits of Σ y / Σ x over blocks drawn with replacement; a draw with Σ x ≤ 0 is infinite."""
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = blocks[generator.integers(0, len(blocks), (BOOTSTRAPS, len(blocks)))].sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.sort(np.where(drawn[:, 1] > 0, drawn[:, 0] / drawn[:, 1], np.inf))
    tail = (1 - CONFIDENCE) / 2
    return float(ratios[int(tail * BOOTSTRAPS)]), float(ratios[math.ceil((1 - tail) * BOOTSTRAPS) - 1])


def best_step(step_sizes: Sequence[float], loss_changes: Sequence[float]) -> float | None:
    """Step size of the lowest loss: the vertex of the parabola through the best one tried and its two neighbours.

    None where the best one is the smallest or largest tried: the optimum was not bracketed.
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
    """Least squares of ε(B) = ε_max / (1 + B_noise / B) to the best step size of each batch size.

    Source: McCandlish et al. 2018, eq. 2.5. Intervals from the fit's own residuals, t with n − 2 degrees of freedom.
    Errors: InputError with fewer than 4 batch sizes, or where the best step does not grow with the batch.
    """
    from scipy.optimize import curve_fit

    b, e = np.asarray(batch_sizes, dtype=np.float64), np.asarray(step_sizes, dtype=np.float64)
    if len(b) < 4:
        raise InputError(
            f"{len(b)} batch sizes cannot carry the fit of two numbers and their doubt; measure at least 4."
        )
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
