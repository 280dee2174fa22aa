from __future__ import annotations

from batchlab.core.record import NoGradientSamples
from batchlab.words.gradient_samples import why_no_gradient_samples


def test_every_reason_has_a_clause_and_remedies_are_named() -> None:
    assert all(why_no_gradient_samples(reason) for reason in NoGradientSamples)
    assert "use_reentrant=False" in why_no_gradient_samples(NoGradientSamples.PARTIAL_GRADIENTS)
    assert "sparse=False" in why_no_gradient_samples(NoGradientSamples.SPARSE)


def test_several_reasons_are_one_clause() -> None:
    lone, none = NoGradientSamples.ONE_MICRO_BATCH, NoGradientSamples.NO_NORM_LAYERS
    assert why_no_gradient_samples(lone, none) == (
        "a step is one micro-batch that may not be split, and the model has no norm layers with trainable parameters"
    )
