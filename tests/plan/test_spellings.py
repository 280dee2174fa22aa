from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable
from typing import Any, get_args

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.extrapolation import Target
from batchlab.analysis.findings import Findings
from batchlab.core.errors import InputError
from batchlab.plan import Format, format_plan, make_plan

Study = Callable[..., Any]


def test_hugging_face_arguments(findings: Findings) -> None:
    arguments = json.loads(format_plan(make_plan(findings, devices=2), "hf"))
    assert arguments["per_device_train_batch_size"] == 32
    assert arguments["gradient_accumulation_steps"] == 1
    assert arguments["max_steps"] == 100
    assert arguments["warmup_steps"] == 10
    assert arguments["adam_beta2"] == 0.95
    assert arguments["lr_scheduler_type"] == "cosine_with_min_lr"
    assert arguments["lr_scheduler_kwargs"] == {"min_lr_rate": 0.1}
    assert arguments["bf16"] is False


@pytest.mark.parametrize(
    ("kind", "name", "decay"),
    [
        ("constant", "constant_with_warmup", {"decay_ratio": 0.0}),
        ("wsd", "warmup_stable_decay", {"decay_type": "linear", "decay_ratio": 0.2}),
    ],
)
def test_other_schedules(synthetic_study: Study, kind: str, name: str, decay: dict[str, Any]) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"schedule": {"kind": kind}})))
    assert json.loads(format_plan(plan, "hf"))["lr_scheduler_type"] == name
    scheduler = tomllib.loads(format_plan(plan, "torchtitan"))["lr_scheduler"]
    assert {key: scheduler[key] for key in decay} == decay


def test_torchtitan_counts_sequences(findings: Findings) -> None:
    values = tomllib.loads(format_plan(make_plan(findings, devices=4), "torchtitan"))
    assert values["training"] | {"local_batch_size": 16, "global_batch_size": 64, "seq_len": 64} == values["training"]
    assert values["optimizer"]["lr"] == 3e-3


def test_nanochat_counts_tokens(findings: Findings) -> None:
    text = format_plan(make_plan(findings, devices=2), "nanochat")
    assert "--total-batch-size=4096" in text
    assert "--device-batch-size=32" in text
    assert "--nproc_per_node=2" in text


def test_torchrun_is_one_command(findings: Findings) -> None:
    words = shlex.split(format_plan(make_plan(findings, devices=8), "torchrun"))
    assert words[:5] == ["torchrun", "--standalone", "--nproc-per-node", "8", "your_train.py"]
    assert words[words.index("--micro-batch-size") + 1] == "8"


def test_an_unknown_format_names_those_there_are(findings: Findings) -> None:
    with pytest.raises(InputError, match="torchtitan"):
        format_plan(make_plan(findings), "yaml")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sgd", "task"])
@pytest.mark.parametrize("format", ["hf", "torchtitan"])
def test_an_optimizer_that_a_trainer_cannot_express_is_not_left_out(
    synthetic_study: Study, name: str, format: Format
) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"optimizer": {"name": name}})))
    assert plan.batch_configuration.optimizer.beta2 is None
    with pytest.raises(InputError, match="cannot express"):
        format_plan(plan, format)
    assert "beta2" not in format_plan(plan, "torchrun")


def test_samples_have_no_nanochat_and_no_sequence_length(synthetic_study: Study) -> None:
    plan = make_plan(assemble(*synthetic_study(unit="samples", token_budget=6400)))
    with pytest.raises(InputError, match="counts samples"):
        format_plan(plan, "nanochat")
    assert "sequence_length" not in plan.paste_block


def test_uneven_micro_batches_are_not_exported(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study(sizes=(11, 22, 45), max_micro_batch_size=7, token_budget=990 * 64 * 10))
    plan = make_plan(findings, target=Target(45))
    c = plan.batch_configuration
    assert c.micro_batch_size * c.grad_accum_steps != 45
    with pytest.raises(InputError, match="micro-batches of 5 would divide it"):
        format_plan(plan, "hf")
    assert format_plan(plan, "json")


def test_every_format_is_offered(findings: Findings) -> None:
    for name in get_args(Format):
        assert format_plan(make_plan(findings), name)
