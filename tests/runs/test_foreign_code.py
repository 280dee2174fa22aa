"""Training code of other packages where a task is expected: recognised by name, answered with lines that run."""

from __future__ import annotations

import textwrap
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import batchlab
from batchlab.core.task import Task
from batchlab.runs.foreign_code import Kind, has_task, no_task_in, recognised


class LightningModule(nn.Module):
    """Stands for Lightning's class: recognised by package and name."""


class Trainer:
    """Stands for that of transformers."""

    def __init__(self) -> None:
        self.model = nn.Linear(2, 1)
        self.train_dataset = self.eval_dataset = [{"x": np.zeros(2, np.float32)}]
        self.data_collator = dict


LightningModule.__module__ = "lightning.pytorch.core.module"
Trainer.__module__ = "transformers.trainer"


class Mine(LightningModule):
    pass


class OwnTrainer(Trainer):
    pass


class Net(nn.Module):
    pass


def variables(**given: Any) -> dict[str, Any]:
    return {"__name__": __name__, **given}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Mine, Kind.LIGHTNING_MODULE),
        (OwnTrainer(), Kind.HF_TRAINER),
        (Net, Kind.MODULE),
        (nn.Linear(1, 1), Kind.MODULE),
        (torch.zeros(1), None),
        (np.zeros, None),
    ],
)
def test_what_a_value_is(value: Any, kind: Kind | None) -> None:
    found = recognised(value, "it")
    assert (found and found.kind) == kind


@pytest.mark.parametrize("given", [{"Net": Net}, {"model": Net()}])
def test_the_lines_make_a_task(given: dict[str, Any]) -> None:
    said = str(no_task_in("mine.py", variables(**given)))
    assert f"{next(iter(given))}, but no task" in said
    lines = textwrap.dedent(said[said.index("\n\n") :])
    namespace = dict(given)
    exec(lines, namespace)
    made = namespace["task"]
    assert isinstance(made, Task)
    assert isinstance(made.model(), nn.Module)


@pytest.mark.parametrize(
    ("given", "function", "arguments"),
    [
        ({"trainer": OwnTrainer(), "Net": Net}, "make_trainer", 1),
        ({"OwnTrainer": OwnTrainer, "Net": Net}, "make_trainer", 1),
        ({"Mine": Mine, "Net": Net}, "make", 0),
    ],
)
def test_a_trainer_is_answered_with_the_function_that_makes_it(
    given: dict[str, Any], function: str, arguments: int
) -> None:
    said = str(no_task_in("folder/mine.py", variables(**given)))
    assert f"batchlab study mine.py:{function}" in said
    lines = textwrap.dedent(said[said.index("\n\n") :])
    namespace: dict[str, Any] = {"__name__": "mine"}
    exec(lines, namespace)
    assert len(signature(namespace[function]).parameters) == arguments


def make() -> None:
    """Stands for the function of a file that is ready."""


def test_a_file_with_the_function_is_told_its_name() -> None:
    assert "run batchlab study mine.py:make" in str(no_task_in("mine.py", variables(make=make, Mine=Mine)))


def test_imported_classes_are_not_taken_for_the_persons_own() -> None:
    assert "makes no task; add one" in str(no_task_in("mine.py", variables(Linear=nn.Linear)))


@pytest.mark.parametrize("given", [{}, {"Net": Net}])
def test_a_script_is_told_that_it_can_stay_as_it_is(given: dict[str, Any]) -> None:
    assert "batchlab init mine.py" in str(no_task_in("folder/mine.py", variables(**given)))
    assert "batchlab init" not in str(no_task_in("package.mine", variables(**given)))


def test_a_task_is_found_among_the_variables() -> None:
    task = batchlab.task(model=Net, loss=lambda model, x, y: 0, train=([], []), valid=([], []))
    assert has_task(variables(task=task, Net=Net))
    assert not has_task(variables(Net=Net))
