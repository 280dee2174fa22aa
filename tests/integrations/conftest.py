"""Scripts that a person might have, and how a study would run them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.command import Command
from batchlab.core.experiment import ScheduleConfig, TaskReference
from batchlab.core.spec import TrainSpec, Workload

SCRIPTS = Path(__file__).parent / "scripts"

ARGPARSE = (
    "{python} argparse_style.py --batch_size {micro_batch_size} --gradient_accumulation_steps {grad_accum_steps} "
    "--learning_rate {learning_rate} --max_iters {steps} --seed {seed} --out_dir {run_dir}"
)
PRINTED = {"from": "stdout", "val_loss": r"val loss (\S+)", "train_loss": r"train loss (\S+)", "step": r"step (\d+)"}


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder with the scripts, for the test alone."""
    return Path(shutil.copytree(SCRIPTS, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def command(scripts: Path) -> Callable[..., Command]:
    """A [command] that runs the argparse script, with changes; `more` is added to its line."""

    def build(more: str = "", **changes: Any) -> Command:
        values = {"run": f"{ARGPARSE}{more}", "folder": str(scripts), "metrics": PRINTED, **changes}
        return Command.model_validate(values)

    return build


@pytest.fixture
def train_spec() -> Callable[..., TrainSpec]:
    """A training run of a command."""

    def build(command: Command, *, batch: int = 8, micro: int | None = None, steps: int = 50, **more: Any) -> TrainSpec:
        layout = BatchLayout(
            global_batch_size=batch, micro_batch_size=micro or batch, sequence_length=command.sequence_length or 1
        )
        tokens = steps * layout.tokens_per_step
        workload = Workload(
            task=TaskReference(kind="command", target="/mine/train.py", attribute="run"),
            unit=Unit.TOKENS if command.sequence_length else Unit.SAMPLES,
            sequence_length=command.sequence_length or 1,
            integration="script",
            command=command,
        )
        known = {"schedule": ScheduleConfig(kind="task", warmup_fraction=0.0), "learning_rate": 3e-3, **more}
        return TrainSpec(workload=workload, layout=layout, token_budget=tokens, evaluation_interval=tokens, **known)

    return build
