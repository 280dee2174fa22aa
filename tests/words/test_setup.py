from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.core.experiment import TaskReference
from batchlab.core.record import Environment
from batchlab.words.setup import facts, setup, task_name

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


def changed(found: Findings, section: str, **settings: object) -> Findings:
    part = getattr(found.experiment, section).model_copy(update=settings)
    return replace(found, experiment=found.experiment.model_copy(update={section: part}))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"name": "adamw"},
            "AdamW, betas 0.9 and 0.95 at batch 16, epsilon 1e-08, weight decay 0.1",
        ),
        (
            {"name": "adam"},
            "Adam, betas 0.9 and 0.95 at batch 16, epsilon 1e-08, L2 penalty 0.1",
        ),
        ({"name": "sgd", "momentum": 0.5}, "SGD, momentum 0.5, weight decay 0.1"),
        ({"name": "task"}, "the task's own, as built for batch 16"),
    ],
)
def test_each_optimizer_has_its_own_name_and_settings(found: Findings, settings: dict[str, object], text: str) -> None:
    assert dict(setup(changed(found, "optimizer", **settings)))["optimizer"] == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("constant", "warm-up over 10 % of the budget, then constant"),
        ("cosine", "warm-up over 10 % of the budget, then cosine decay to 10 % of the peak"),
        (
            "wsd",
            "warm-up over 10 % of the budget, constant, then linear decay over the last 20 % to 10 % of the peak",
        ),
    ],
)
def test_each_schedule_says_where_it_ends(found: Findings, kind: str, text: str) -> None:
    assert dict(setup(changed(found, "schedule", kind=kind)))["schedule"] == text


def test_axes_and_seeds(found: Findings) -> None:
    terms = dict(setup(found))
    assert terms["batch sizes"] == "4, 8, 16, 32 and 64"
    assert terms["budget"] == "409,600 tokens per run"
    confirming = changed(found, "sweep", confirm=2)
    assert dict(setup(confirming))["seeds"].startswith("3 at each of the compared cells; 2 confirmation seeds at the ")
    none = changed(found, "sweep", confirm=0)
    assert dict(setup(none))["seeds"] == "3 at each of the compared cells"


def test_nothing_decided_yet_is_said(synthetic_study: Study) -> None:
    started = replace(assemble(*synthetic_study(keep=0)), token_budget=None)
    started = changed(started, "sweep", learning_rates=None)
    terms = dict(setup(started))
    assert (terms["budget"], terms["learning rates"]) == ("not set yet", "not chosen yet")
    assert "budget not set yet" in facts(started)


def test_the_device_is_named_with_its_memory(found: Findings) -> None:
    environment = Environment(
        batchlab="1",
        python="3.12",
        numpy="2",
        platform="Linux",
        processor="x86",
        device="A100",
        device_memory_bytes=80 * 2**30,
        cores=8,
    )
    terms = dict(setup(replace(found, environment=environment)))
    assert terms["device"] == "A100, 80.00 GiB; x86, 8 cores"
    assert terms["versions"] == "batchlab 1, Python 3.12, numpy 2, Linux"
    card = environment.model_copy(update={"driver": "580.1", "compute_capability": "8.0", "max_clock_mhz": 1410})
    terms = dict(setup(replace(found, environment=card)))
    assert terms["device"] == "A100, 80.00 GiB; compute capability 8.0 at up to 1,410 MHz; x86, 8 cores"
    assert "NVIDIA driver 580.1" in terms["versions"]
    assert facts(replace(found, environment=environment))[-1].startswith("A100 (")


def test_the_task_is_named_without_the_folders_of_the_machine() -> None:
    reference = TaskReference(kind="file", target="/home/someone/secret/mine.py", attribute="task")
    assert task_name(reference) == "mine.py:task"
    assert task_name(TaskReference(kind="recipe", target="quickstart")) == "recipe quickstart"
    assert task_name(TaskReference(kind="module", target="package.mine")) == "package.mine:task"
