"""The frozen question: round trips, defaults, and the sentences for wrong values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.core.experiment import (
    Experiment,
    TaskReference,
    build_experiment,
    differing_fields,
)
from batchlab.core.settings import Difference

BASE: dict[str, Any] = {"name": "mine", "task": {"kind": "recipe", "target": "quickstart"}}


def experiment(**settings_: Any) -> Experiment:
    return build_experiment({**BASE, **settings_})


positive = st.floats(1e-12, 1e12)
experiments = st.builds(
    lambda sizes, rates, seeds, limit, model, budget: experiment(
        batch={"global_batch_sizes": sizes},
        sweep={"learning_rates": rates, "seeds": seeds},
        device={"memory_limit": limit},
        model=model,
        budget={"time_budget_seconds": budget},
    ),
    st.lists(st.integers(1, 10_000), min_size=1, max_size=5),
    st.none() | st.lists(positive, min_size=1, max_size=5),
    st.integers(1, 9),
    st.none() | st.integers(1, 2**50),
    st.dictionaries(
        st.text(max_size=5),
        st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(),
    ),
    st.none() | positive,
)


@settings(deadline=None)
@given(one=experiments)
def test_json_round_trip_is_exact(one: Experiment) -> None:
    again = Experiment.model_validate_json(one.model_dump_json())
    assert again == one
    assert differing_fields(one, again) == []
    assert all(type(again.model[key]) is type(value) for key, value in one.model.items())


def test_axes_are_sorted_and_without_repeats() -> None:
    one = experiment(batch={"global_batch_sizes": [32, 4, 32, 8]}, sweep={"learning_rates": [1e-2, 1e-3, 1e-2]})
    assert one.batch.global_batch_sizes == (4, 8, 32)
    assert one.sweep.learning_rates == (1e-3, 1e-2)


@pytest.mark.parametrize(
    ("sizes", "given_", "reference"), [((4, 8, 16, 32, 64), None, 16), ((4, 8, 16, 32), None, 8), ((4, 8), 100, 100)]
)
def test_reference_batch_size(sizes: tuple[int, ...], given_: int | None, reference: int) -> None:
    one = experiment(batch={"global_batch_sizes": sizes}, optimizer={"reference_batch_size": given_})
    assert one.reference_batch_size == reference


def test_amounts_of_memory_are_written_as_people_do() -> None:
    assert experiment(device={"memory_limit": "1.5GiB"}).device.memory_limit == 3 * 2**29


@pytest.mark.parametrize(
    ("settings_", "says"),
    [
        ({"optimizer": {"beta_2": 0.9}}, "no setting 'optimizer.beta_2'. Did you mean 'optimizer.beta2'?"),
        ({"batch": {"zzz": 1}}, "no setting 'batch.zzz'. Possible: batch.global_batch_sizes, batch.micro_batch"),
        ({"batch": {"global_batch_sizes": [4, -8]}}, "batch.global_batch_sizes.1 is -8: should be greater than 0"),
        ({"batch": {"global_batch_sizes": [1.5]}}, "batch.global_batch_sizes.0 is 1.5"),
        ({"batch": {"global_batch_sizes": []}}, "at least 1 item"),
        ({"batch": {"micro_batching": "maybe"}}, "'auto' or 'off'"),
        ({"sweep": {"learning_rates": [0.0]}}, "sweep.learning_rates.0 is 0.0"),
        ({"sweep": {"learning_rates": [float("nan")]}}, "sweep.learning_rates.0 is nan"),
        ({"sweep": {"learning_rates": [float("inf")]}}, "sweep.learning_rates.0 is inf"),
        ({"sweep": {"learning_rates": []}}, "sweep.learning_rates"),
        ({"schedule": {"warmup_fraction": 1.0}}, "schedule.warmup_fraction is 1.0: should be less than 1"),
        ({"data": {"valid_fraction": 0}}, "data.valid_fraction is 0"),
        ({"device": {"memory_limit": "lots"}}, "device.memory_limit is 'lots': 'lots' is not an amount of memory"),
        ({"device": {"memory_limit": 1.5}}, "device.memory_limit is 1.5"),
        ({"device": {"name": "gpu"}}, "device.name is 'gpu'"),
        ({"name": "../up"}, "name is '../up'"),
        ({"task": {"kind": "recipe"}}, "task.target is missing"),
        ({"schema_version": 2}, "schema_version is 2"),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(settings_: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        experiment(**settings_)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_differences_are_named_with_both_values() -> None:
    one, other = experiment(), experiment(optimizer={"beta2": 0.9}, model={"layers": 3})
    assert differing_fields(one, other) == [
        Difference("model.layers", None, 3),
        Difference("optimizer.beta2", 0.95, 0.9),
    ]
    assert differing_fields(one, one) == []


def test_more_patience_is_the_same_question() -> None:
    assert differing_fields(experiment(), experiment(device={"silence_seconds": 1.0})) == []


def test_task_references_read_as_people_write_them() -> None:
    assert str(TaskReference(kind="recipe", target="quickstart")) == "quickstart"
    assert str(TaskReference(kind="file", target="/a/b.py", attribute="big")) == "/a/b.py:big"
