"""Sums over the steps of a run: a resumed tally ends with the numbers of one that was never interrupted."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import MemoryReading, StepStats
from batchlab.core.spec import TrainSpec, Workload
from batchlab.runs.divergence import Diverged
from batchlab.runs.evaluation import Evaluation
from batchlab.runs.tally import Tally

MEMORY = MemoryReading(1, 2, 3, 4, "reserved")
SPEC = TrainSpec(
    workload=Workload(task=TaskReference(kind="recipe", target="simulated")),
    layout=BatchLayout(global_batch_size=8, micro_batch_size=8),
    learning_rate=0.1,
    token_budget=8 * 40,
    evaluation_interval=80,
)


def stats(first: int, stop: int) -> list[StepStats]:
    return [StepStats(2.0 - step / 40, 1.0 + step, float(step % 2)) for step in range(first, stop)]


def fed(tally: Tally, first: int, stop: int) -> Tally:
    tally.add(stats(first, stop), first, SPEC)
    tally.add_seconds(0.5 * (stop - first))
    tally.add_evaluation(Evaluation(1.5, 0.1), stop, SPEC)
    return tally


def result(tally: Tally) -> dict[str, object]:
    found = tally.result(SPEC, 40, MEMORY, epochs=1.0, repaired_lines=0, no_gradient_samples=())
    return found.model_dump(exclude={"resumed"})


def test_a_row_holds_means_and_the_next_one_begins_anew() -> None:
    tally = Tally.begin(SPEC)
    tally.add(stats(0, 4), 0, SPEC)
    tally.add_seconds(2.0)
    row = tally.take_row(SPEC, 4, 0.1, MEMORY)
    assert (row.step, row.tokens) == (4, 32)
    assert row.train_loss == pytest.approx(2.0 - 1.5 / 40)
    assert (row.train_loss_max, row.grad_norm, row.clipped_fraction) == (2.0, 2.5, 0.5)
    assert (row.step_seconds, row.tokens_per_second) == (0.5, 16.0)
    assert (row.in_use_bytes, row.reserved_bytes) == (1, 2)
    tally.add(stats(4, 5), 4, SPEC)
    assert tally.take_row(SPEC, 5, 0.1, MEMORY).train_loss == pytest.approx(1.9)


def test_the_result_has_the_final_tenth_and_one_peak() -> None:
    found = fed(Tally.begin(SPEC), 0, 40).result(SPEC, 40, MEMORY, epochs=1.0, repaired_lines=2, no_gradient_samples=())
    assert found.final_train_loss == pytest.approx(2.0 - 37.5 / 40)
    assert found.final_grad_norm == pytest.approx(38.5)
    assert (found.val_loss, found.val_error, found.repaired_lines) == (1.5, 0.1, 2)
    assert (found.peak_bytes, found.measured, found.peak_in_use_bytes) == (4, "reserved", 3)


def test_a_tally_from_a_checkpoint_ends_with_the_same_numbers() -> None:
    whole = fed(fed(Tally.begin(SPEC), 0, 15), 15, 40)
    saved = json.loads(json.dumps(asdict(fed(Tally.begin(SPEC), 0, 15))))
    resumed = fed(Tally.resume(saved), 15, 40)
    assert resumed.resumed == 1
    assert result(resumed) == result(whole)


def test_the_step_that_is_not_finite_is_raised_with_its_number() -> None:
    tally = Tally.begin(SPEC)
    with pytest.raises(Diverged) as raised:
        tally.add([*stats(0, 3), StepStats(float("nan"), 1.0, 0.0)], 0, SPEC)
    assert raised.value.step == 4
