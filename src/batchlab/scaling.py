"""What else must follow when the batch size changes, as pure functions; each names its source and its limits."""

from __future__ import annotations

from batchlab.experiment import AcrossBatch


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
