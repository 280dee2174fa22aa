"""The frozen question: round trips, defaults, and the sentences for wrong values."""

from __future__ import annotations

import copy
import math
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
from batchlab.core.settings import Difference, field_names, set_dotted

BASE: dict[str, Any] = {"name": "mine", "task": {"kind": "recipe", "target": "quickstart"}}


def experiment(**settings_: Any) -> Experiment:
    return build_experiment({**BASE, **settings_})


experiments = st.builds(
    lambda sizes, rates, seeds, limit, model, budget: experiment(
        batch={"global_batch_sizes": sizes},
        sweep={"learning_rates": rates, "seeds": seeds},
        device={"memory_limit": limit},
        model=model,
        budget={"time_budget_seconds": budget},
    ),
    st.lists(st.integers(1, 10_000), min_size=1, max_size=5),
    st.none() | st.lists(st.floats(1e-12, 1e6), min_size=1, max_size=5),
    st.integers(1, 9),
    st.none() | st.integers(2**20, 2**50),
    st.dictionaries(
        st.text(max_size=5),
        st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(),
    ),
    st.none() | st.floats(1e-12, 1e8),
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
        (
            {"batch": {"global_batch_sizes": [4, -8]}},
            "batch.global_batch_sizes.1 is -8: should be greater than or equal to 1",
        ),
        ({"batch": {"global_batch_sizes": [1.5]}}, "batch.global_batch_sizes.0 is 1.5"),
        ({"batch": {"global_batch_sizes": []}}, "at least 1 item"),
        ({"batch": {"micro_batching": "maybe"}}, "'auto', 'even' or 'off'"),
        ({"sweep": {"learning_rates": [0.0]}}, "sweep.learning_rates.0 is 0.0"),
        ({"sweep": {"learning_rates": [float("nan")]}}, "sweep.learning_rates.0 is nan"),
        ({"sweep": {"learning_rates": [float("inf")]}}, "sweep.learning_rates.0 is inf"),
        ({"sweep": {"learning_rates": []}}, "sweep.learning_rates"),
        ({"schedule": {"warmup_fraction": 1.0}}, "schedule.warmup_fraction is 1.0: should be less than 1"),
        ({"data": {"valid_fraction": 0}}, "data.valid_fraction is 0"),
        ({"device": {"memory_limit": "lots"}}, "device.memory_limit is 'lots': 'lots' is not an amount of memory"),
        ({"device": {"memory_limit": 1.5}}, "device.memory_limit is 1.5"),
        ({"device": {"name": "metal"}}, "device.name is 'metal'"),
        ({"name": "../up"}, "name is '../up'"),
        ({"name": "my model"}, "--set name=my-study"),
        ({"optimiser": {"beta2": 0.9}}, "no setting 'optimiser'. Did you mean 'optimizer'?"),
        ({"seeds": 3}, "no setting 'seeds'. Did you mean 'sweep.seeds'?"),
        ({"sweep": {"seeds": True}}, "sweep.seeds is True: should be a valid integer"),
        ({"sweep": {"seeds": 1.5}}, "sweep.seeds is 1.5: should be a valid integer"),
        ({"sweep": {"seeds": 1001}}, "sweep.seeds is 1001: should be less than or equal to 1000"),
        ({"evaluation": {"target_loss": float("inf")}}, "target_loss is inf: should be a finite number"),
        ({"model": {"width": float("nan")}}, "model.width is nan: a model setting is text"),
        ({"model": {"width": [1]}}, "model.width is [1]: a model setting is"),
        ({"data": {"path": ""}}, "data.path is ''"),
        ({"data": {"path": "a\0b"}}, "null character"),
        ({"device": {"memory_limit": 64}}, "give a unit"),
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


ABSURD = [
    10**30,
    -(10**30),
    10**5000,
    math.inf,
    math.nan,
    "x" * 5000,
    {},
    {"a" * 5000: "b" * 5000},
    object(),
]


@pytest.mark.parametrize("name", [*(name for name in field_names(Experiment) if name != "model"), "model.width"])
def test_no_setting_accepts_what_is_beyond_reason(name: str) -> None:
    """Every number has a maximum, every list a greatest length, and whatever is refused is repeated only in part."""
    command = {"run": "train", "metrics": {"val_loss": "loss"}}
    baseline = {"batch_size": 8, "learning_rate": 1e-3, "loss": 2.0}
    default: Any = experiment(model={"width": 3}, command=command, baseline=baseline).model_dump()
    for part in name.split("."):
        default = default[part]
    longer = list(default or [1]) * 10_000 if isinstance(default, tuple) else [1] * 10_000
    for value in [*ABSURD, *([each] for each in ABSURD), longer]:
        values = copy.deepcopy(BASE)
        set_dotted(values, name, value)
        with pytest.raises(InputError) as caught:
            build_experiment(values)
        assert len(str(caught.value)) < 600, str(caught.value)


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
