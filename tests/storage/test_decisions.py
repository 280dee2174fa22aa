"""What a study decided: joined without a later choice replacing an earlier one, and read back as it was."""

from __future__ import annotations

import pytest

from batchlab.core.batch import Unit
from batchlab.core.record import Outcome, TaskInfo
from batchlab.storage.decisions import (
    AcceptedEdit,
    BudgetDecision,
    CapacityDecision,
    ConcurrencyDecision,
    CriticalRound,
    Decisions,
    GainBound,
    MemoryVariantDecision,
    PriorLaw,
    PriorStudy,
    PriorTrial,
    SearchStop,
    StopReason,
)

TASK_INFO = TaskInfo(
    unit=Unit.TOKENS,
    sequence_length=64,
    train_samples=100,
    valid_samples=10,
    parameter_count=7,
    optimizer_family="adam",
    data_source="text",
    data_digest="d",
    device="cpu",
)
EVERYTHING = Decisions(
    task_info=TASK_INFO,
    prior=PriorStudy(
        study="earlier",
        token_budget=2048,
        trials=(
            PriorTrial(global_batch_size=8, learning_rate=0.1 + 0.2, seed=0, val_loss=1 / 3, judged=True, why=None),
            PriorTrial(
                global_batch_size=8, learning_rate=1.0, seed=0, val_loss=None, judged=True, why=Outcome.DIVERGED
            ),
            PriorTrial(global_batch_size=4, learning_rate=1.0, seed=0, val_loss=float("inf"), judged=False, why=None),
        ),
    ),
    capacity_limit_bytes=2**34,
    micro_batch=CapacityDecision(searched_up_to=64, max_micro_batch_size=64),
    capacity=CapacityDecision(searched_up_to=4096, max_micro_batch_size=128, smallest_failed=129),
    variants={"z": MemoryVariantDecision(max_micro_batch_size=3), "a": MemoryVariantDecision(why_not="no")},
    concurrency=ConcurrencyDecision(workers=2, threads=1),
    budget=BudgetDecision(
        token_budget=4096,
        evaluation_interval=512,
        adaptive=True,
        runs_planned=20,
        runs_at_most=30,
        workers=2,
        seconds_planned=1.5,
        steps_of_largest=40,
        steps_to_judge=50,
        undertrained=(64,),
    ),
    notes_digest="n",
    search_stopped=SearchStop(
        reason=StopReason.LITTLE_TO_GAIN,
        runs=12,
        finite_runs=11,
        expected_gain_percent=0.1 + 0.2,
        least_gain_percent=0.5,
        bound=GainBound.MEASURED_NOISE,
        repeated_runs=2,
        enclosed=True,
    ),
    complete=True,
    accepted_edits=(AcceptedEdit(path="mine.py", digest="1"),),
    critical_rounds={1: CriticalRound(sizes=(4, 16), longer=(2.0,))},
)


def test_everything_is_read_back_as_it_was() -> None:
    again = Decisions.model_validate_json(EVERYTHING.as_json())
    assert again == EVERYTHING
    assert list(again.variants) == ["z", "a"], "variants keep the order in which they were measured"
    law = Decisions(prior=PriorLaw(law="deepseek", parameters=7, sequence_length=64))
    assert Decisions.model_validate_json(law.as_json()) == law


def test_only_what_was_decided_is_written() -> None:
    assert Decisions().as_json() == "{}\n"
    assert Decisions.model_validate_json(Decisions(complete=True).as_json()).model_fields_set == {"complete"}


@pytest.mark.parametrize("name", sorted(set(Decisions.model_fields) - {"variants", "critical_rounds"}))
def test_the_first_choice_of_a_field_stays(name: str) -> None:
    first = Decisions.model_validate({name: getattr(EVERYTHING, name)})
    assert Decisions().joined(first) == first
    joined = first.joined(EVERYTHING)
    assert getattr(joined, name) == getattr(EVERYTHING, name)
    assert joined == EVERYTHING


def test_the_first_budget_stays() -> None:
    assert EVERYTHING.budget is not None
    later = Decisions(budget=EVERYTHING.budget.model_copy(update={"token_budget": 1}))
    assert EVERYTHING.joined(later) == EVERYTHING


def test_maps_grow_and_keep_the_first_of_each_key() -> None:
    other = MemoryVariantDecision(max_micro_batch_size=9)
    grown = EVERYTHING.joined(Decisions(variants={"z": other, "new": other})).variants
    assert grown == {**EVERYTHING.variants, "new": other}
    assert list(grown) == ["z", "a", "new"]
    rounds = EVERYTHING.joined(Decisions(critical_rounds={2: CriticalRound(sizes=(8,), longer=())})).critical_rounds
    assert sorted(rounds) == [1, 2]


def test_an_accepted_edit_is_kept_once_and_others_beside_it() -> None:
    first = EVERYTHING.accepted_edits[0]
    again = AcceptedEdit(path="mine.py", digest="2")
    assert EVERYTHING.joined(Decisions(accepted_edits=(first, again))).accepted_edits == (first, again)


def test_memory_is_the_search_for_the_largest_size_where_there_is_one() -> None:
    assert EVERYTHING.memory == EVERYTHING.capacity
    assert Decisions(micro_batch=EVERYTHING.micro_batch).memory == EVERYTHING.micro_batch
    assert Decisions().memory is None
