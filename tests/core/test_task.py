"""`batchlab.task`: what it takes, what it refuses, and that it ignores nothing silently."""

from __future__ import annotations

import inspect
import re
from functools import partial
from typing import Any

import pytest

import batchlab
from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.task import optimizer_argument

SOUND: dict[str, Any] = {"model": dict, "loss": max, "train": [1], "valid": [2]}


def test_every_argument_ends_up_in_the_task() -> None:
    made = batchlab.task(**SOUND)
    for name in inspect.signature(batchlab.task).parameters:
        assert hasattr(made, name), name


def test_tokens_where_there_is_a_sequence_length_else_samples() -> None:
    assert batchlab.task(**SOUND, sequence_length=8).unit is Unit.TOKENS
    assert batchlab.task(**SOUND).unit is Unit.SAMPLES
    assert batchlab.task(**SOUND, sequence_length=8, unit="samples").unit is Unit.SAMPLES


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": {}}, "give a function, e.g. model=lambda"),
        ({"loss": 3}, "loss"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"count": 4}, "count"),
        ({"unit": "words"}, "'tokens' and 'samples'"),
        ({"reduction": "max"}, "'mean' and 'sum'"),
        ({"sequence_length": 0}, "at least 1"),
        ({"sequence_length": 2.5}, "at least 1"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        batchlab.task(**{**SOUND, **wrong})


def lion(params: Any, lr: float, *, momentum: float = 0.9, **others: Any) -> None:
    """An optimizer with options."""


@pytest.mark.parametrize(
    ("optimizer", "argument"),
    [
        (lambda params, lr: None, "params"),
        (lambda model, lr: None, "model"),
        (lion, "params"),
        (partial(lion, momentum=0.5), "params"),
    ],
)
def test_the_first_parameter_says_what_an_optimizer_takes(optimizer: Any, argument: str) -> None:
    made = batchlab.task(**SOUND, optimizer=optimizer)
    assert made.optimizer is not None
    assert optimizer_argument(made.optimizer) == argument


@pytest.mark.parametrize(
    ("optimizer", "given"),
    [
        (lambda p, lr: None, "takes (p, lr)"),
        (lambda lr, params: None, "takes (lr, params)"),
        (lambda model: None, "takes (model)"),
        (lambda params, lr, steps: None, "takes (params, lr, steps)"),
        (partial(lion, lr=0.1), "takes (params"),
        (lambda *args: None, "takes (*args)"),
    ],
)
def test_other_signatures_are_refused_with_both_that_there_are(optimizer: Any, given: str) -> None:
    with pytest.raises(InputError, match=re.escape(given)) as error:
        batchlab.task(**SOUND, optimizer=optimizer)
    assert "(params, lr)" in str(error.value)
    assert "(model, lr)" in str(error.value)
