from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import LossSpike, StepEvent
from batchlab.words.dynamics import training_dynamics

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


def only(found: Findings, word: str) -> str:
    (said,) = [statement for statement in training_dynamics(found) if word in statement]
    return said


def test_warmup_is_given_in_tokens_and_in_steps_of_the_smallest_and_largest_size(found: Findings) -> None:
    assert only(found, "Warm-up") == (
        "Warm-up takes 40,960 tokens (10 % of the budget) at every batch size: 160 steps at batch 4, 10.0 at batch 64."
    )


def test_the_gap_is_a_mean_per_size_with_its_number_of_runs(found: Findings) -> None:
    said = only(found, "minus training loss")
    assert said.startswith("Validation loss minus training loss ")
    assert "is +0.050 at all 5 sizes (n = 9 runs)" in said
    assert said.endswith("The gap alone does not show overfitting.")


def test_spikes_are_counted_and_the_highest_is_placed(found: Findings) -> None:
    none = only(replace(found, diagnostics=replace(found.diagnostics, judged_runs=4, spikes=())), "spike")
    assert none.startswith("There was no loss spike in 4 runs.")
    run = found.runs[0]
    spikes = tuple(LossSpike(run.run_id, step, 1000 * step, 5.0, height, 1) for step, height in ((10, 1.5), (20, 2.5)))
    said = only(replace(found, diagnostics=replace(found.diagnostics, judged_runs=4, spikes=spikes)), "spike")
    assert said.startswith(
        "There were 2 loss spikes in 1 of 4 runs. The highest, +2.500, was at step 20 of batch 4, LR "
    )


def test_the_first_non_finite_value_is_placed(found: Findings) -> None:
    run = found.runs[0]
    event = StepEvent(run.run_id, 12, 3072, "not finite", ("train_loss", "grad_norm/all"))
    said = only(replace(found, diagnostics=replace(found.diagnostics, events=(event,))), "NaN")
    assert said.startswith("The first NaN or infinity was seen at step 12 of batch 4, LR ")
    assert said.endswith("in train_loss and grad_norm/all.")


def test_repeated_data_and_resumed_runs_are_mentioned(found: Findings) -> None:
    runs = (replace(found.runs[0], epochs=2.5, resumed=1), *found.runs[1:])
    statements = training_dynamics(replace(found, runs=runs))
    assert (
        "The longest run makes 2.5 passes over the training data, so part of it is seen more than once." in statements
    )
    assert "1 run resumed from a checkpoint after an interruption." in statements


def test_missing_diagnostics_have_a_reason_and_no_study_no_statement(found: Findings, synthetic_study: Study) -> None:
    assert only(found, "not shown").endswith("no run has a diagnostic snapshot.")
    assert training_dynamics(assemble(*synthetic_study(keep=0))) == ()
