"""The optimizer's time constants at another batch size: they are set per step, but what they do is per token."""

from __future__ import annotations

import math

from batchlab.core.experiment import AcrossBatch, OptimizerConfig
from batchlab.core.spec import MIN_WARMUP_STEPS
from batchlab.scaling.answer import Refused, Scaled, Scaling, refuse_unless_positive
from batchlab.scaling.refusals import (
    AboveCriticalBatch,
    Negative,
    NoHalfLife,
    SdeOutOfRange,
    WarmupTooShort,
)
from batchlab.scaling.rules import HalfLifeRule, SdeRule, TimescaleRule, WarmupRule

TIMESCALE_EXPONENT = 0.53
"""Best AdamW timescale, as a share of the run, ∝ (tokens per parameter)^−0.53 (exponent from secondary sources)."""


BETA2_RANGE = (0.95, 0.9999)
"""Between which beta2 follows the batch size. Marin clips the same rule to these (marin-community/marin#6044), after
runs at very large batches spiked without (#2447); its sweep of beta2 at four batch sizes agrees with the rule down to
0.95, its lowest value (#4567). Marek et al. went from 0.93 to 0.99997."""


def beta2_at(beta2: float, batch_ratio: float) -> float:
    """Adam's beta2 at `batch_ratio` × the reference batch, its half-life in tokens held constant: beta2^ratio, within
    `BETA2_RANGE`, or as far as `beta2` itself where that lies outside.

    Half-life in tokens is B·ln(½)/ln(beta2); keeping it gives beta2' = beta2^(B'/B).
    Source: Marek et al. 2025, arXiv:2507.07101. Shown there for Adam from batch 1 to 4096; beta1 is left alone.
    """
    low, high = BETA2_RANGE
    return float(min(max(beta2**batch_ratio, min(beta2, low)), max(beta2, high)))


def epsilon_at(epsilon: float, batch_ratio: float) -> float:
    """Adam's epsilon at `batch_ratio` × the reference batch: ε/√ratio, in proportion to the noise of the gradient.

    Source: Malladi et al. 2022, arXiv:2205.10287, where gradient noise outweighs the gradient.
    """
    return epsilon / math.sqrt(batch_ratio)


def weight_decay_at(weight_decay: float, batch_ratio: float) -> float:
    """AdamW's weight decay with its timescale in tokens, B/(η·λ), held constant at equal learning rate: λ·ratio.

    Source: Bergsma et al. 2025, arXiv:2505.13738 (there: below the critical batch size, at fixed model and budget).
    """
    return weight_decay * batch_ratio


def weight_decay_of(config: OptimizerConfig, batch_ratio: float, rate_ratio: float = 1.0) -> float:
    """The weight decay of a run at so many times the reference batch size and reference learning rate."""
    decay = config.weight_decay / rate_ratio
    return weight_decay_at(decay, batch_ratio) if config.across_batch is AcrossBatch.HALF_LIFE_AND_DECAY else decay


def decay_timescale(learning_rate: float, weight_decay: float, steps: float) -> float:
    """B/(η·λ·D): the share of a run of so many steps in which AdamW's decay alone shrinks a weight by a factor of e.

    At the peak learning rate η, in the form of torch's AdamW, which decays by η·λ per step (Wang & Aitchison 2024,
    arXiv:2405.13698). Infinite without decay. A sweep of η at one λ moves it as well.
    """
    rate = learning_rate * weight_decay * steps
    return 1 / rate if rate > 0 else math.inf


def beta2_by_half_life(beta2: float, batch_ratio: float) -> Scaling:
    """`beta2_at` with its rule."""
    if refusal := _refuse_beta(beta2) or refuse_unless_positive(batch_ratio=batch_ratio):
        return refusal
    low, high = BETA2_RANGE
    return Scaled(beta2_at(beta2, batch_ratio), HalfLifeRule(beta2, batch_ratio, min(beta2, low), max(beta2, high)))


def beta_by_sde(beta: float, batch_ratio: float) -> Scaling:
    """beta1 or beta2 by the rule of the SDE limit, 1 − κ(1 − beta), which needs κ(1 − beta) < 1.

    Source: Malladi et al. 2022, arXiv:2205.10287. Agrees with the half-life rule to first order in κ(1 − beta).
    """
    if refusal := _refuse_beta(beta) or refuse_unless_positive(batch_ratio=batch_ratio):
        return refusal
    most = 1 / (1 - beta)
    if batch_ratio * (1 - beta) >= 1:
        return Refused(SdeOutOfRange(beta, batch_ratio, most))
    return Scaled(1 - batch_ratio * (1 - beta), SdeRule(batch_ratio, most))


def weight_decay_by_timescale(
    weight_decay: float,
    from_batch: float,
    to_batch: float,
    *,
    learning_rate_ratio: float = 1.0,
    budget_ratio: float = 1.0,
    critical_batch_size: float | None = None,
) -> Scaling:
    """Weight decay that keeps AdamW's timescale in tokens, B/(η·λ), when batch and learning rate change.

    With another budget at the same model the best timescale grows as budget^0.47, so λ falls by that factor. Source:
    Bergsma et al. 2025, arXiv:2505.13738. Refused above `critical_batch_size`, where λ no longer rises with the batch.
    """
    if refusal := refuse_unless_positive(
        batch_size=from_batch,
        target_batch_size=to_batch,
        learning_rate_ratio=learning_rate_ratio,
        budget_ratio=budget_ratio,
    ):
        return refusal
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        return Refused(Negative("weight_decay", weight_decay))
    if critical_batch_size is not None and to_batch > max(critical_batch_size, from_batch):
        return Refused(AboveCriticalBatch(to_batch, critical_batch_size))
    value = weight_decay_at(weight_decay, to_batch / from_batch) / learning_rate_ratio
    if budget_ratio != 1:
        value *= budget_ratio ** (TIMESCALE_EXPONENT - 1)
    return Scaled(
        value, TimescaleRule(to_batch / from_batch, learning_rate_ratio, budget_ratio, 1 - TIMESCALE_EXPONENT)
    )


def warmup_by_tokens(warmup_tokens: float, tokens_per_step: float, *, budget_ratio: float = 1.0) -> Scaling:
    """Warm-up in tokens at another batch or budget: the same tokens per budget, whatever the batch.

    A convention, not a law: it is how batchlab's schedules run. Refused where it leaves under five steps of warm-up.
    """
    if refusal := refuse_unless_positive(tokens_per_step=tokens_per_step, budget_ratio=budget_ratio):
        return refusal
    if not (math.isfinite(warmup_tokens) and warmup_tokens >= 0):
        return Refused(Negative("warmup_tokens", warmup_tokens))
    value = warmup_tokens * budget_ratio
    if 0 < value < MIN_WARMUP_STEPS * tokens_per_step:
        return Refused(WarmupTooShort(value, tokens_per_step, MIN_WARMUP_STEPS))
    return Scaled(value, WarmupRule(MIN_WARMUP_STEPS))


def _refuse_beta(beta: float) -> Refused | None:
    return None if 0 < beta < 1 else Refused(NoHalfLife(beta))
