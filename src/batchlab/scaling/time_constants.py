"""The optimizer's time constants at another batch size: they are set per step, but what they do is per token."""

from __future__ import annotations

import math

from batchlab.core.experiment import AcrossBatch
from batchlab.core.spec import MIN_WARMUP_STEPS
from batchlab.scaling.answer import Refused, Scaled, Scaling, format_size, refuse_unless_positive

TIMESCALE_EXPONENT = 0.53
"""Best AdamW timescale, as a share of the run, ∝ (tokens per parameter)^−0.53 (exponent from secondary sources)."""


def beta2_at(beta2: float, batch_ratio: float) -> float:
    """Adam's beta2 at `batch_ratio` × the reference batch, its half-life in tokens held constant: beta2^ratio.

    Half-life in tokens is B·ln(½)/ln(beta2); keeping it gives beta2' = beta2^(B'/B).
    Source: Marek et al. 2025, arXiv:2507.07101. Shown there for Adam from batch 1 to 4096; beta1 is left alone.
    """
    return float(beta2**batch_ratio)


def weight_decay_at(weight_decay: float, batch_ratio: float) -> float:
    """AdamW's weight decay with its timescale in tokens, B/(η·λ), held constant at equal learning rate: λ·ratio.

    Source: Bergsma et al. 2025, arXiv:2505.13738 (there: below the critical batch size, at fixed model and budget).
    """
    return weight_decay * batch_ratio


def describe_across_batch(rule: AcrossBatch, beta2: float, batch_ratio: float) -> str:
    """The rule in words with the value it gives, to be printed beside a batch size."""
    if rule is AcrossBatch.FIXED:
        return f"beta2 {beta2:g} at every batch size"
    text = f"beta2 {beta2_at(beta2, batch_ratio):.4g} (half-life in tokens held)"
    return text + (f", weight decay × {batch_ratio:g}" if rule is AcrossBatch.HALF_LIFE_AND_DECAY else "")


def beta2_by_half_life(beta2: float, batch_ratio: float) -> Scaling:
    """`beta2_at`, refused where the half-life would fall below one step: nothing would be averaged any more."""
    if refusal := _refuse_beta(beta2) or refuse_unless_positive(batch_ratio=batch_ratio):
        return refusal
    value = beta2_at(beta2, batch_ratio)
    most = math.log(0.5) / math.log(beta2)
    if batch_ratio > most:
        return Refused(
            f"At {batch_ratio:g} × the batch, beta2 {beta2:g} would become {value:.2g}, a half-life of less than one "
            f"step; the half-life in tokens can be held up to {most:.3g} × the batch."
        )
    return Scaled(
        value,
        rule=f"half-life in tokens held: {beta2:g}^{batch_ratio:g}",
        source="Marek et al. 2025, arXiv:2507.07101: one half-life in tokens was near best from batch 1 to 1,024",
        range=f"up to {most:.3g} × the batch, where the half-life is one step; no lower limit was seen",
    )


def beta_by_sde(beta: float, batch_ratio: float) -> Scaling:
    """beta1 or beta2 by the rule of the SDE limit, 1 − κ(1 − beta), which needs κ(1 − beta) < 1.

    Source: Malladi et al. 2022, arXiv:2205.10287. Agrees with the half-life rule to first order in κ(1 − beta).
    """
    if refusal := _refuse_beta(beta) or refuse_unless_positive(batch_ratio=batch_ratio):
        return refusal
    most = 1 / (1 - beta)
    if batch_ratio * (1 - beta) >= 1:
        return Refused(
            f"The rule 1 − κ(1 − beta) has no valid beta at κ = {batch_ratio:g} × the batch from {beta:g}: "
            f"κ(1 − beta) is {batch_ratio * (1 - beta):.3g} and must stay below 1, so κ below {most:.3g}. "
            "Hold the half-life in tokens instead, or move less far."
        )
    return Scaled(
        1 - batch_ratio * (1 - beta),
        rule=f"1 − κ(1 − beta) with κ = {batch_ratio:g}",
        source="Malladi et al. 2022, arXiv:2205.10287; belongs with the square-root learning rate and eps ÷ √κ",
        range=f"κ below {most:.3g}, and only while gradient noise outweighs the gradient",
    )


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
        return Refused(f"Weight decay is {weight_decay:g}; it must be a finite number of at least 0.")
    if critical_batch_size is not None and to_batch > max(critical_batch_size, from_batch):
        return Refused(
            f"Batch {format_size(to_batch)} is above the critical batch size {format_size(critical_batch_size)}; weight "
            "decay in proportion to the batch was shown only below it. Keep the weight decay, or tune it there."
        )
    value = weight_decay_at(weight_decay, to_batch / from_batch) / learning_rate_ratio
    rule = (
        f"timescale in tokens held: × {to_batch / from_batch:.3g} (batch) ÷ {learning_rate_ratio:.3g} (learning rate)"
    )
    if budget_ratio != 1:
        value *= budget_ratio ** (TIMESCALE_EXPONENT - 1)
        rule += f" ÷ {budget_ratio:.3g}^{1 - TIMESCALE_EXPONENT:.2f} (budget)"
    return Scaled(
        value,
        rule=rule,
        source="Bergsma et al. 2025, arXiv:2505.13738 (Power Lines); its exponent of the budget not checked by us",
        range="below the critical batch size, at the same model; shown with µP and decay to zero",
    )


def warmup_by_tokens(warmup_tokens: float, tokens_per_step: float, *, budget_ratio: float = 1.0) -> Scaling:
    """Warm-up in tokens at another batch or budget: the same tokens per budget, whatever the batch.

    A convention, not a law: it is how batchlab's schedules run. Refused where it leaves under five steps of warm-up.
    """
    if refusal := refuse_unless_positive(tokens_per_step=tokens_per_step, budget_ratio=budget_ratio):
        return refusal
    if not (math.isfinite(warmup_tokens) and warmup_tokens >= 0):
        return Refused(f"Warm-up is {warmup_tokens:g} tokens; it must be a finite number of at least 0.")
    value = warmup_tokens * budget_ratio
    if 0 < value < MIN_WARMUP_STEPS * tokens_per_step:
        steps = value / tokens_per_step
        return Refused(
            f"A warm-up of {format_size(value)} tokens is {steps:.2g} steps of {format_size(tokens_per_step)} tokens; "
            f"under {MIN_WARMUP_STEPS} steps is a jump, not a warm-up. "
            f"Give at least {format_size(MIN_WARMUP_STEPS * tokens_per_step)} tokens of it, or a smaller batch."
        )
    return Scaled(
        value,
        rule="the same tokens at every batch size, the same share of every budget",
        source="batchlab's schedules run in tokens; no law of warm-up is claimed",
        range=f"at least {MIN_WARMUP_STEPS} steps of warm-up",
    )


def _refuse_beta(beta: float) -> Refused | None:
    return None if 0 < beta < 1 else Refused(f"A beta of {beta:g} has no half-life; it must lie between 0 and 1.")
