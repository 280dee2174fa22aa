from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.values import BatchRow
from batchlab.analysis.verdict import Recommendation, SpeedUnknown
from batchlab.core.batch import Unit, lay_out
from batchlab.core.experiment import AcrossBatch, OptimizerConfig
from batchlab.words.plan import (
    describe_batch,
    describe_beta2,
    describe_layout,
    describe_loss,
    describe_nearest_layout,
    describe_rate,
    describe_shareable,
    describe_speed,
    describe_untested,
    extrapolation_note,
    nanochat_note,
    paste_title,
)


@pytest.fixture
def row(synthetic_study: Callable[..., Any]) -> BatchRow:
    surface = assemble(*synthetic_study()).surface
    assert surface is not None
    assert surface.best is not None
    return surface.best


def test_a_batch_names_its_runs_and_its_reason(row: BatchRow) -> None:
    runs = "3 seeds at batch 16, learning rate 1.0e-3"
    assert describe_batch(row, None, Unit.TOKENS) == f"{runs}; asked for"
    recommended = Recommendation("fastest", row.layout, 1e-3, 0.0, SpeedUnknown())
    assert describe_batch(row, recommended, Unit.TOKENS) == f"{runs}; lowest validation loss; speed was not measured"
    assert describe_rate(row) == "lowest loss of 4 learning rates tried at this batch size"
    assert describe_loss(row, lay_out(16, 16)) == runs
    assert describe_loss(row, lay_out(16, 8, data_parallel_size=2)).startswith(f"{runs}; splitting a batch")


def test_a_layout_on_more_devices_names_its_assumption(synthetic_study: Callable[..., Any]) -> None:
    memory = assemble(*synthetic_study()).memory
    assert describe_layout(memory, lay_out(16, 16)) == "the layout that was trained"
    text = describe_layout(memory, lay_out(16, 8, data_parallel_size=2))
    assert text.startswith(
        "global batch ÷ 2 devices, in the fewest micro-batches that fit; the largest that fits is 48"
    )
    assert describe_untested(text) == f"{text}; not yet run for 50 steps, which --recheck does"


def test_the_nearest_layout_is_named() -> None:
    assert describe_nearest_layout(32, 32) == "the layout of batch 32 in the study"
    assert describe_nearest_layout(32, 24) == "based on the layout of batch 32, the nearest one measured, for batch 24"


def test_speed_and_beta2() -> None:
    assert describe_speed(64, 64, 1) == "throughput of batch 64, alone on the device"
    assert "on one device, for 16 samples per device" in describe_speed(32, 16, 4)
    assert describe_beta2(OptimizerConfig(across_batch=AcrossBatch.FIXED), 16) == "the same at every batch size"
    assert "0.95^(batch ÷ 16)" in describe_beta2(OptimizerConfig(across_batch=AcrossBatch.HALF_LIFE), 16)


def test_comments_of_exports() -> None:
    note = extrapolation_note("learning_rate", rule="√B", source="a paper", valid="batch 8 to 64", low=1e-3, high=2e-3)
    assert note == "extrapolated: learning_rate by √B, 1.0e-3 to 2.0e-3 (a paper; valid for batch 8 to 64)"
    assert paste_title("mine", 64, Unit.TOKENS, 128) == "batchlab study mine: 64 sequences per step"
    assert "1.0e-3 was measured with adamw" in nanochat_note(1e-3, "adamw", ())


def test_of_batches_that_can_be_shared_the_tied_ones_are_named() -> None:
    said = describe_shareable(4, [8, 32], 8, None)
    assert said == "Of those that 4 can share, 8 and 32 are statistically tied with the best: --batch-size 8."
    assert describe_shareable(4, [], 32, None) == "The nearest that 4 can share is 32: --batch-size 32."
    assert describe_shareable(4, [], None, None) == ""
