from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any, get_args

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.extrapolation import Target
from batchlab.analysis.findings import Findings
from batchlab.core.errors import InputError
from batchlab.plan import Format, format_plan, make_plan, plan_notes

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
        ("constant", "constant_with_warmup", {"decay-ratio": "0.0"}),
        ("wsd", "warmup_stable_decay", {"decay-type": "linear", "decay-ratio": "0.2"}),
    ],
)
def test_other_schedules(synthetic_study: Study, kind: str, name: str, decay: dict[str, Any]) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"schedule": {"kind": kind}})))
    assert json.loads(format_plan(plan, "hf"))["lr_scheduler_type"] == name
    flags = torchtitan_flags(format_plan(plan, "torchtitan"))
    assert {key: flags[f"lr-scheduler.{key}"] for key in decay} == decay


def torchtitan_flags(text: str) -> dict[str, str]:
    """The flags of a torchtitan command, without comments and line breaks; the last word of several counts."""
    command = "".join(line.removesuffix("\\") for line in text.splitlines() if not line.startswith("#"))
    parts = [part.split(maxsplit=1) for part in command.split(" --")]
    return {part[0]: part[1].strip() for part in parts if len(part) == 2}


def test_torchtitan_counts_sequences(findings: Findings) -> None:
    flags = torchtitan_flags(format_plan(make_plan(findings, devices=4), "torchtitan"))
    assert flags["training.local-batch-size"] == "16"
    assert flags["training.global-batch-size"] == "64"
    assert flags["training.seq-len"] == "64"
    assert flags["optimizer.param-groups.0.optimizer-kwargs.lr"] == "0.003"
    assert flags["optimizer.param-groups.0.optimizer-kwargs.betas"] == "0.9 0.95"


def nanogpt_globals(text: str) -> dict[str, Any]:
    """What nanoGPT's configurator gets from the file: it executes it."""
    found: dict[str, Any] = {}
    exec(compile(text, "config/batchlab.py", "exec"), {}, found)
    return found


def test_nanogpt_counts_the_micro_batches_of_all_devices(findings: Findings) -> None:
    text = format_plan(make_plan(findings, devices=2), "nanogpt")
    values = nanogpt_globals(text)
    assert values["batch_size"] == 32
    assert values["gradient_accumulation_steps"] == 2
    assert values["block_size"] == 64
    assert values["min_lr"] == pytest.approx(0.1 * values["learning_rate"])
    assert values["max_iters"] == values["lr_decay_iters"] == 100
    assert (values["beta2"], values["weight_decay"], values["dtype"]) == (0.95, 0.1, "float32")
    assert "--nproc_per_node=2" in text


def test_nanogpt_keeps_warm_up_at_a_constant_learning_rate(synthetic_study: Study) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"schedule": {"kind": "constant"}})))
    values = nanogpt_globals(format_plan(plan, "nanogpt"))
    assert values["decay_lr"] is True
    assert values["min_lr"] == values["learning_rate"]


@pytest.mark.parametrize("format", ["nanogpt", "deepspeed"])
def test_a_schedule_that_a_trainer_lacks_is_an_error(synthetic_study: Study, format: Format) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"schedule": {"kind": "wsd"}})))
    with pytest.raises(InputError, match="cannot express the schedule wsd"):
        format_plan(plan, format)


def test_clipping_that_is_off_stays_off(synthetic_study: Study) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"optimizer": {"grad_clip": "off"}})))
    assert json.loads(format_plan(plan, "hf"))["max_grad_norm"] == 0.0
    assert json.loads(format_plan(plan, "deepspeed"))["gradient_clipping"] == 0.0
    assert torchtitan_flags(format_plan(plan, "torchtitan"))["training.max-norm"] == "inf"
    assert nanogpt_globals(format_plan(plan, "nanogpt"))["grad_clip"] == 0.0
    assert "gradient_clip_val=None" in format_plan(plan, "lightning")


def test_trl_packs_samples_of_one_length(findings: Findings, synthetic_study: Study) -> None:
    arguments = json.loads(format_plan(make_plan(findings), "trl"))
    assert (arguments["max_length"], arguments["packing_strategy"]) == (64, "wrapped")
    samples = make_plan(assemble(*synthetic_study(unit="samples", token_budget=6400)))
    assert "max_length" not in json.loads(format_plan(samples, "trl"))


def test_deepspeed_factors_multiply(findings: Findings) -> None:
    config = json.loads(format_plan(make_plan(findings, devices=2), "deepspeed"))
    assert config["train_batch_size"] == 64
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 2 == 64
    assert config["scheduler"]["params"]["warmup_type"] == "linear"


def test_a_launcher_says_what_belongs_in_the_script(findings: Findings) -> None:
    for format in ("lightning", "accelerate"):
        text = format_plan(make_plan(findings), format)
        assert "DataLoader(batch_size=32)" in text
        assert "learning rate 3.0e-3" in text
        assert "beta2 0.95" in text
    assert "gradient_accumulation_steps=2" in format_plan(make_plan(findings), "accelerate")
    assert "accumulate_grad_batches=2" in format_plan(make_plan(findings), "lightning")


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
@pytest.mark.parametrize("format", ["hf", "trl"])
def test_an_optimizer_that_a_trainer_cannot_express_is_not_left_out(
    synthetic_study: Study, name: str, format: Format
) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"optimizer": {"name": name}})))
    assert plan.batch_configuration.optimizer.beta2 is None
    with pytest.raises(InputError, match="cannot express"):
        format_plan(plan, format)
    assert "beta2" not in format_plan(plan, "torchrun")


@pytest.mark.parametrize("name", ["sgd", "task"])
@pytest.mark.parametrize("format", ["nanogpt", "torchtitan", "lightning", "accelerate", "nanochat"])
def test_a_format_whose_optimizer_is_built_elsewhere_names_it(
    synthetic_study: Study, name: str, format: Format
) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"optimizer": {"name": name}})))
    text = format_plan(plan, format)
    assert {"sgd": "sgd", "task": "task's own"}[name] in text or format == "nanochat"
    assert "beta" not in text
    assert "optimizer-kwargs" not in text


def test_deepspeed_without_an_optimizer_says_so_beside_it(synthetic_study: Study, findings: Findings) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"optimizer": {"name": "sgd"}})))
    assert {"optimizer", "scheduler"}.isdisjoint(json.loads(format_plan(plan, "deepspeed")))
    assert any("sgd" in note for note in plan_notes(plan, "deepspeed"))
    assert plan_notes(make_plan(findings), "deepspeed") == ()


def test_samples_have_no_nanochat_and_no_sequence_length(synthetic_study: Study) -> None:
    plan = make_plan(assemble(*synthetic_study(unit="samples", token_budget=6400)))
    for format in ("nanochat", "nanogpt"):
        with pytest.raises(InputError, match="counts samples"):
            format_plan(plan, format)
    assert "sequence_length" not in plan.paste_block


def test_fp16_and_compilation_are_spelled_or_refused(synthetic_study: Study) -> None:
    device = {"precision": "fp16", "compile": "reduce-overhead"}
    plan = make_plan(assemble(*synthetic_study(settings={"device": device})))
    arguments = json.loads(format_plan(plan, "hf"))
    assert (arguments["fp16"], arguments["bf16"]) == (True, False)
    assert (arguments["torch_compile"], arguments["torch_compile_mode"]) == (True, "reduce-overhead")
    assert nanogpt_globals(format_plan(plan, "nanogpt"))["dtype"] == "float16"
    assert "precision='16-mixed'" in format_plan(plan, "lightning")
    assert 'mixed_precision: "fp16"' in format_plan(plan, "accelerate")
    refused: tuple[Format, ...] = ("torchtitan", "deepspeed")
    for format in refused:
        with pytest.raises(InputError, match="--precision bf16"):
            format_plan(plan, format)


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
