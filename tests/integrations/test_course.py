from __future__ import annotations

import json
import math
from typing import Any

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import MemoryReading
from batchlab.core.spec import TrainSpec, Workload
from batchlab.integrations.course import Course, Logged
from batchlab.runs.divergence import Diverged
from batchlab.runs.evaluation import Evaluation

MEMORY = MemoryReading(1, None, 2, 3, "process")
SPEC = TrainSpec(
    workload=Workload(task=TaskReference(kind="file", target="ft.py", attribute="make_trainer"), sequence_length=4),
    layout=BatchLayout(global_batch_size=8, micro_batch_size=8, sequence_length=4),
    learning_rate=1e-3,
    token_budget=640,
    evaluation_interval=320,
)


def logged(step: int, loss: float, **changes: Any) -> Logged:
    values: dict[str, Any] = {"steps": 10, "samples": 8 * step, "seconds": 2.0, "grad_norm": 2.0, "learning_rate": 1e-3}
    return Logged(step=step, train_loss=loss, **{**values, **changes})


def course() -> Course:
    return Course.begin(SPEC, total_steps=20, grad_clip=1.0)


def test_rows_count_the_samples_that_were_seen() -> None:
    row = course().log(logged(10, 3.0, samples=75), MEMORY)
    assert (row.tokens, row.tokens_per_second, row.step_seconds) == (300, 150.0, 0.2)
    assert row.clipped_fraction == 1.0


def test_a_resumed_course_ends_with_the_same_result() -> None:
    whole, first = course(), course()
    for one in (whole, first):
        one.log(logged(10, 3.0), MEMORY)
        one.evaluated(Evaluation(2.5, 0.1), 10)
    second = Course.resume(json.loads(json.dumps(first.saved())))
    for one in (whole, second):
        one.log(logged(20, 2.0), MEMORY)
        one.evaluated(Evaluation(1.5, 0.2), 20)
    results = [one.result(SPEC, 20, 100, MEMORY, 0) for one in (whole, second)]
    assert results[0] == results[1].model_copy(update={"resumed": 0})
    assert results[1].resumed == 1
    assert (results[0].val_loss, results[0].val_error, results[0].final_train_loss) == (1.5, 0.2, 2.0)
    assert results[0].val_curve == ((320, 2.5), (640, 1.5))


def test_a_run_that_ended_early_has_no_final_loss() -> None:
    one = course()
    one.log(logged(10, 3.0), MEMORY)
    one.evaluated(Evaluation(2.5, None), 10)
    result = one.result(SPEC, 10, 100, MEMORY, 0)
    assert (result.val_loss, result.final_train_loss, result.best_val_loss) == (None, None, 2.5)


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e9])
def test_a_loss_beyond_recovery_ends_the_run(loss: float) -> None:
    one = course()
    one.log(logged(10, 3.0, steps=32), MEMORY)
    with pytest.raises(Diverged):
        one.log(logged(20, loss, steps=32), MEMORY)
