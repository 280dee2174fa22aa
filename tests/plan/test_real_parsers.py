"""Every format is read by the program it is for. Only in `make test-integrations`, which installs those programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.core.experiment import ScheduleConfig
from batchlab.plan import TrainingPlan, format_plan, make_plan

pytestmark = pytest.mark.integration

KINDS = [kind for kind in get_args(ScheduleConfig.model_fields["kind"].annotation) if kind != "task"]
DEVICES = (1, 2)

Study = Callable[..., Any]


@pytest.fixture(params=[(kind, devices) for kind in KINDS for devices in DEVICES], ids=lambda one: f"{one[0]}-{one[1]}")
def plan(request: pytest.FixtureRequest, synthetic_study: Study) -> TrainingPlan:
    kind, devices = request.param
    settings = {"schedule": {"kind": kind}, "device": {"precision": "bf16"}}
    return make_plan(assemble(*synthetic_study(settings=settings)), devices)


def command_words(text: str) -> list[str]:
    """A command as a shell splits it, without comments; shlex keeps the newline behind a backslash."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return shlex.split("\n".join(lines).replace("\\\n", " "))


def test_transformers_takes_every_argument(plan: TrainingPlan, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    values = {**json.loads(format_plan(plan, "hf")), "output_dir": str(tmp_path), "use_cpu": True}
    (arguments,) = parser.parse_dict(values)  # raises for a key it does not know
    c = plan.batch_configuration
    assert arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * c.data_parallel_size == (
        c.global_batch_size
    )
    assert arguments.get_warmup_steps(c.steps) == c.warmup_steps
    assert arguments.bf16


def test_transformers_builds_the_schedule(plan: TrainingPlan) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    values, c = json.loads(format_plan(plan, "hf")), plan.batch_configuration
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=c.learning_rate)
    scheduler = transformers.get_scheduler(
        values["lr_scheduler_type"],
        optimizer,
        num_warmup_steps=c.warmup_steps,
        num_training_steps=c.steps,
        scheduler_specific_kwargs=values.get("lr_scheduler_kwargs"),
    )
    rates = []
    for _ in range(c.steps):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates[c.warmup_steps] == pytest.approx(c.learning_rate)
    final = 1.0 if c.schedule.kind == "constant" else c.schedule.final_fraction
    assert rates[-1] == pytest.approx(final * c.learning_rate, rel=0.5)


def test_trl_takes_every_argument(plan: TrainingPlan, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    config = trl.SFTConfig(**json.loads(format_plan(plan, "trl")), output_dir=str(tmp_path), use_cpu=True)
    assert config.max_length == plan.batch_configuration.sequence_length
    assert config.packing_strategy == "wrapped"


def test_lightning_makes_the_trainer(plan: TrainingPlan) -> None:
    lightning = pytest.importorskip("lightning")
    text = format_plan(plan, "lightning").replace("lightning.Trainer(", 'lightning.Trainer(accelerator="cpu", ')
    found: dict[str, Any] = {}
    exec(compile(text, "batchlab", "exec"), found)
    trainer, c = found["trainer"], plan.batch_configuration
    assert isinstance(trainer, lightning.Trainer)
    assert (trainer.max_steps, trainer.accumulate_grad_batches) == (c.steps, c.grad_accum_steps)
    assert (trainer.num_devices, trainer.precision) == (c.data_parallel_size, "bf16-mixed")


def test_accelerate_reads_the_file_and_launches_with_it(plan: TrainingPlan, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    path = tmp_path / "accelerate.yaml"
    path.write_text(format_plan(plan, "accelerate"), encoding="utf-8")
    config = load_config_from_file(str(path))  # raises for a key it does not know
    assert config.num_processes == plan.batch_configuration.data_parallel_size
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    launched, _, _ = _validate_launch_command(arguments)
    assert (launched.num_processes, launched.mixed_precision) == (config.num_processes, "bf16")


def test_deepspeed_reads_every_key_back(plan: TrainingPlan) -> None:
    """It accepts unknown keys, so each of ours is compared with what it understood."""
    if plan.batch_configuration.schedule.kind == "wsd":
        pytest.skip("refused: it has no such scheduler")
    pytest.importorskip("deepspeed")
    from deepspeed.runtime import lr_schedules
    from deepspeed.runtime.config import DeepSpeedConfig

    config, c = json.loads(format_plan(plan, "deepspeed")), plan.batch_configuration
    one_device = {**config, "train_batch_size": config["train_batch_size"] // c.data_parallel_size}
    read = DeepSpeedConfig(one_device)
    assert read.train_micro_batch_size_per_gpu == c.micro_batch_size
    assert read.gradient_accumulation_steps == c.grad_accum_steps
    assert read.gradient_clipping == c.optimizer.grad_clip
    assert read.torch_autocast_enabled
    assert str(read.torch_autocast_dtype) == "torch.bfloat16"
    assert read.optimizer_name == "adamw"
    assert read.optimizer_params == config["optimizer"]["params"]
    assert read.scheduler_name == config["scheduler"]["type"]
    assert read.scheduler_params == config["scheduler"]["params"]

    torch = pytest.importorskip("torch")
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=c.learning_rate)
    scheduler = getattr(lr_schedules, read.scheduler_name)(optimizer, **read.scheduler_params)
    rates = []
    for _ in range(c.steps):
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    assert max(rates) == pytest.approx(c.learning_rate, rel=1e-3)


def test_torchtitan_parses_its_flags(plan: TrainingPlan) -> None:
    """Its own tyro registry over its own sections. Its models need triton, so no config of a model is loaded."""
    pytest.importorskip("torchtitan")
    import dataclasses

    import tyro
    from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, default_adamw
    from torchtitan.config.configs import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.config.manager import ConfigManager, custom_registry

    sections = [
        ("training", TrainingConfig, dataclasses.field(default_factory=TrainingConfig)),
        ("parallelism", ParallelismConfig, dataclasses.field(default_factory=ParallelismConfig)),
        ("compile", CompileConfig, dataclasses.field(default_factory=CompileConfig)),
        ("optimizer", OptimizersContainer.Config, dataclasses.field(default_factory=lambda: default_adamw(lr=8e-4))),
        ("lr_scheduler", LRSchedulersContainer.Config, dataclasses.field(default_factory=LRSchedulersContainer.Config)),
    ]
    config = dataclasses.make_dataclass("Config", sections, kw_only=True)
    text = format_plan(plan, "torchtitan")
    words = command_words(text)
    flags = words[words.index("YOUR_CONFIG") + 1 :]
    ConfigManager()
    read = tyro.cli(config, args=flags, default=config(), registry=custom_registry)
    c = plan.batch_configuration
    assert read.training.local_batch_size == c.micro_batch_size
    assert read.training.global_batch_size == c.global_batch_size
    assert read.training.max_norm == c.optimizer.grad_clip
    (group,) = read.optimizer.param_groups
    assert group.optimizer_name == "AdamW"
    assert group.optimizer_kwargs == {
        "lr": c.learning_rate,
        "betas": (c.optimizer.beta1, c.optimizer.beta2),
        "eps": c.optimizer.epsilon,
        "weight_decay": c.optimizer.weight_decay,
    }
    assert read.lr_scheduler.warmup_steps == c.warmup_steps
    decay = {"cosine": None, "constant": 0.0, "wsd": c.schedule.decay_fraction}[c.schedule.kind]
    assert read.lr_scheduler.decay_ratio == decay


NANOGPT_GLOBALS: dict[str, type] = {
    "gradient_accumulation_steps": int,
    "batch_size": int,
    "block_size": int,
    "learning_rate": float,
    "max_iters": int,
    "weight_decay": float,
    "beta1": float,
    "beta2": float,
    "grad_clip": float,
    "decay_lr": bool,
    "warmup_iters": int,
    "lr_decay_iters": int,
    "min_lr": float,
    "dtype": str,
    "compile": bool,
}
"""Those globals of nanoGPT's train.py (commit 3adf61e) that a plan sets. Its configurator executes any file, and
compares the types of what is given on its command line."""


def test_nanogpt_has_every_global(plan: TrainingPlan) -> None:
    if plan.batch_configuration.schedule.kind == "wsd":
        pytest.skip("refused: its learning rate decays as a cosine")
    found: dict[str, Any] = {}
    exec(compile(format_plan(plan, "nanogpt"), "config/batchlab.py", "exec"), {}, found)
    assert {name: type(value) for name, value in found.items()} == NANOGPT_GLOBALS


def test_torchrun_parses_its_part(plan: TrainingPlan) -> None:
    pytest.importorskip("torch")
    from torch.distributed.run import parse_args

    read = parse_args(command_words(format_plan(plan, "torchrun"))[1:])
    assert read.nproc_per_node == str(plan.batch_configuration.data_parallel_size)
    assert (read.module, read.training_script) == (True, "batchlab")
