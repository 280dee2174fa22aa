"""Dotted names of settings: written, listed, merged and compared."""

from __future__ import annotations

from typing import Any

import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.settings import Difference, describe_settings, differences, field_names, merge, set_dotted

COMMAND = {"run": "train", "metrics": {"val_loss": "loss"}}
BASELINE = {"batch_size": 8, "learning_rate": 1e-3, "loss": 2.0}
EXPERIMENT = build_experiment(
    {
        "name": "mine",
        "task": {"kind": "recipe", "target": "quickstart"},
        "command": COMMAND,
        "baseline": BASELINE,
    }
)


def test_dotted_settings() -> None:
    values: dict[str, Any] = {"batch": {"micro_batch_size": 3}}
    set_dotted(values, "optimizer.beta2", 0.9)
    set_dotted(values, "batch.micro_batching", "off")
    set_dotted(values, "name", "x")
    assert values == {
        "batch": {"micro_batch_size": 3, "micro_batching": "off"},
        "optimizer": {"beta2": 0.9},
        "name": "x",
    }
    with pytest.raises(InputError, match="'name' is a single value"):
        set_dotted(values, "name.first", 1)


def test_every_setting_has_a_dotted_name_that_works() -> None:
    names = field_names(Experiment)
    assert "optimizer.beta2" in names
    assert "task.target" in names
    assert len(set(names)) == len(names)
    dumped = EXPERIMENT.model_dump(mode="json")
    for name in names:
        node = dumped
        for part in name.split("."):
            node = node[part]
    lines = describe_settings(Experiment)
    assert [line.split()[0] for line in lines] == names


def test_merging_replaces_values_and_joins_sections() -> None:
    base = {"a": {"x": 1, "y": 2}, "b": 3, "c": {"z": 4}}
    assert merge(base, {"a": {"y": 5}, "b": {"now": "a section"}, "c": None}) == {
        "a": {"x": 1, "y": 5},
        "b": {"now": "a section"},
        "c": None,
    }
    assert base["a"] == {"x": 1, "y": 2}, "the base is left as it was"


def test_differences_name_the_setting_and_both_values() -> None:
    other = build_experiment({**EXPERIMENT.model_dump(), "sweep": {"seeds": 5}, "sequence_length": 7})
    assert differences(EXPERIMENT, other) == [Difference("sequence_length", 1, 7), Difference("sweep.seeds", 3, 5)]
