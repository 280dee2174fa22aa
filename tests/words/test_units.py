from __future__ import annotations

from batchlab.core.batch import BatchLayout, Unit
from batchlab.words.units import Units


def test_a_study_is_described_in_its_own_unit() -> None:
    split = BatchLayout(global_batch_size=64, micro_batch_size=8, data_parallel_size=4, sequence_length=256)
    tokens, samples = Units(Unit.TOKENS, 256), Units(Unit.SAMPLES, 1)
    assert tokens.step_size(split) == "64 sequences (16,384 tokens) per step"
    assert samples.step_size(split) == "64 samples per step"
    assert (tokens.singular, samples.singular) == ("token", "sample")
    assert tokens.loss_axis == "validation loss (nats per token)"
    assert samples.train_loss_axis == "training loss (mean per sample)"
    assert samples.batch_axis == "global batch size (samples)"
    assert Units(Unit.TOKENS, 1).items == "samples"


def test_a_metric_has_its_own_name() -> None:
    scored = Units(Unit.TOKENS, 256, "1 − accuracy")
    assert (scored.loss_axis, scored.judged, scored.named("0.07")) == (
        "1 − accuracy",
        "1 − accuracy",
        "1 − accuracy 0.07",
    )
    assert Units(Unit.TOKENS, 256).named("2.1") == "2.1"
