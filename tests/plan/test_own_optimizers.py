"""A plan for a task that brings its own optimizers: every group is in it, and nothing is lost in an export."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.extrapolation import Target
from batchlab.analysis.findings import Findings
from batchlab.core.errors import InputError
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.plan import Format, TrainingPlan, format_plan, make_plan, plan_notes
from batchlab.scaling import beta2_at
from batchlab.words.setup import setup

GROUPS = (
    OptimizerGroup(optimizer="Muon", learning_rate_ratio=1.0, weight_decay=0.1, parameter_count=130_000),
    OptimizerGroup(
        optimizer="AdamW", learning_rate_ratio=0.2, weight_decay=0.0, beta2=0.999, epsilon=1e-8, parameter_count=9_328
    ),
)

Build = Callable[..., Findings]


@pytest.fixture
def findings(synthetic_study: Callable[..., Any]) -> Build:
    """`findings(groups, …)`: those of a task whose own optimizers have these groups at batch 16."""

    def build(groups: tuple[OptimizerGroup, ...] = GROUPS, **optimizer: Any) -> Findings:
        settings = {"optimizer": {"name": "task", **optimizer}}
        found = assemble(*synthetic_study(batch_curvature=0.0005, settings=settings))
        info = found.task_info.model_copy(update={"own_optimizer": True, "optimizer_groups": groups})
        return replace(found, task_info=info)

    return build


def test_groups_are_as_they_were_at_this_batch_size(findings: Build) -> None:
    plan = make_plan(findings(), target=Target(64))
    muon, adamw = plan.batch_configuration.optimizer.groups
    assert muon == GROUPS[0]
    assert (adamw.learning_rate_ratio, adamw.weight_decay) == (0.2, 0.0)
    assert adamw.beta2 == pytest.approx(beta2_at(0.999, 4))
    assert adamw.epsilon == pytest.approx(5e-9)
    assert make_plan(findings(across_batch="fixed"), target=Target(64)).batch_configuration.optimizer.groups == GROUPS
    decaying = make_plan(findings(across_batch="half_life_and_decay"), target=Target(64))
    muon, _ = decaying.batch_configuration.optimizer.groups
    assert muon.weight_decay == pytest.approx(0.4)
    assert "ratio" in plan.provenance["optimizer"].source
    assert TrainingPlan.model_validate_json(plan.model_dump_json()) == plan


def test_every_export_for_a_persons_script_names_every_group(findings: Build) -> None:
    plan = make_plan(findings())
    formats: tuple[Format, ...] = ("torchrun", "nanochat", "nanogpt", "torchtitan", "lightning", "accelerate")
    for text in (plan.paste_block, *(format_plan(plan, format) for format in formats)):
        assert "Muon, 130k parameters, at the learning rate, weight decay 0.1" in text
        assert "AdamW, 9,328 parameters, at 0.2 × the learning rate" in text
    assert tomllib.loads(plan.paste_block)["optimizer"] == "task"
    assert len(json.loads(format_plan(plan, "json"))["batch_configuration"]["optimizer"]["groups"]) == 2


@pytest.mark.parametrize("format", ["hf", "trl"])
def test_a_trainer_with_one_optimizer_is_refused_several(findings: Build, format: Format) -> None:
    with pytest.raises(InputError, match=r"2 parameter groups \(Muon and AdamW\)"):
        format_plan(make_plan(findings()), format)
    with pytest.raises(InputError, match="cannot express the task's own optimizer;"):
        format_plan(make_plan(findings(GROUPS[1:])), format)


def _adamw(weight_decay: float, learning_rate_ratio: float = 1.0) -> OptimizerGroup:
    return OptimizerGroup(
        optimizer="AdamW",
        learning_rate_ratio=learning_rate_ratio,
        weight_decay=weight_decay,
        beta1=0.9,
        beta2=0.98,
        epsilon=1e-8,
        parameter_count=1000,
    )


def test_groups_that_differ_in_decay_alone_are_one_adamw(findings: Build) -> None:
    plan = make_plan(findings((_adamw(0.1), _adamw(0.0)), across_batch="fixed"))
    arguments = json.loads(format_plan(plan, "hf"))
    assert (arguments["adam_beta1"], arguments["adam_beta2"], arguments["weight_decay"]) == (0.9, 0.98, 0.1)
    assert len([note for note in plan_notes(plan, "hf") if "weight decay" in note]) == 2
    assert "weight_decay = 0.1" in format_plan(plan, "nanogpt")
    assert "optimizer-kwargs" not in format_plan(plan, "torchtitan")
    other = make_plan(findings((_adamw(0.1), _adamw(0.1, learning_rate_ratio=0.5))))
    with pytest.raises(InputError, match="2 parameter groups"):
        format_plan(other, "hf")


def test_the_report_names_every_group(findings: Build) -> None:
    optimizer = dict(setup(findings()))["optimizer"]
    assert "batch 16: Muon, 130k parameters" in optimizer
    assert "; AdamW, 9,328 parameters, at 0.2 ×" in optimizer
