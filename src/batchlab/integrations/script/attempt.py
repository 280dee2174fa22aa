"""One execution of the command: its words are filled, it is run, and how it ended becomes an outcome with rows."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from batchlab import __version__
from batchlab.core.batch import BatchLayout
from batchlab.core.command import Command
from batchlab.core.errors import RunFailure
from batchlab.core.metric import Metric
from batchlab.core.out_of_memory import Evidence, evidence_of
from batchlab.core.protocols import KilledFromOutside, RunContext, RunResult
from batchlab.core.record import Environment, MeasuredMemory, Outcome
from batchlab.core.spec import DeviceSettings
from batchlab.integrations.script import launcher
from batchlab.integrations.script.launcher import RECORDS
from batchlab.integrations.script.logged_rows import TRAINER_ROWS, WANDB_ROWS
from batchlab.integrations.script.metrics import Printed, Row, read_rows, trainer_rows, wandb_rows
from batchlab.integrations.script.process import Ended, Output, run_command
from batchlab.integrations.script.template import parse
from batchlab.storage.refused_write import refused_write

SHORT_SECONDS = 5.0
"""What {seconds} is for runs that only try or measure something."""


@dataclass(frozen=True, slots=True)
class Filling:
    """What one execution is asked for. tokens: of the whole execution, as the study counts them. seconds: of training,
    where the command is told a time."""

    layout: BatchLayout
    learning_rate: float
    steps: int
    tokens: int
    seed: int = 0
    warmup_steps: int = 0
    seconds: float = SHORT_SECONDS


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one execution ended. `rows` are in the order in which the script gave them.

    reason: a sentence where the outcome is not completed. peak_bytes counts what `measured` names.
    """

    outcome: Outcome
    reason: str
    rows: tuple[Row, ...]
    ended: Ended
    peak_bytes: int | None
    measured: MeasuredMemory
    environment: Environment
    certain: bool = True
    resumed: bool = False

    @property
    def val_loss(self) -> float | None:
        """The last validation loss, or judged metric; None where there was none."""
        return next((row.val_loss for row in reversed(self.rows) if row.val_loss is not None), None)

    def failed(self) -> RunResult:
        """The result of a spec that this execution did not carry out."""
        return RunResult(self.outcome, self.reason, None, environment=self.environment)


@dataclass(frozen=True, slots=True)
class Execution:
    """Where and how commands are executed for one spec. metric: what is judged; None: the loss."""

    command: Command
    context: RunContext
    device: DeviceSettings
    metric: Metric | None = None

    def attempt(
        self, filling: Filling, name: str = "output", *, most_seconds: float | None = None, resumable: bool = False
    ) -> Attempt:
        """Execute the command once, in the folder `name` of the run.

        most_seconds: where it is ended before the command's own limit and counts as completed, because it only had to
        get so far. resumable: with {resume}, it goes on from what an attempt that was stopped left there. Raises
        KilledFromOutside.
        """
        template = parse(self.command.run)
        output, records = self.context.path / name, self.context.path / "processes"
        unfinished = resumable and template.has("resume") and output.is_dir()
        if not unfinished:
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir()
        shutil.rmtree(records, ignore_errors=True)
        records.mkdir()
        values = placeholder_values(self.command, filling, output, resume=unfinished)
        printed = Printed.of(self.command.metrics)
        with (self.context.path / "log.txt").open("ab", buffering=0) as log:
            ended = run_command(
                template.filled(values),
                folder=Path(self.command.folder),
                environment=self._environment(records),
                output=Output(log=log.write, line=printed.line),
                working=lambda: self.context.progress(0, filling.steps, 0, None, None),
                stop_requested=self.context.stop_requested,
                most_seconds=min(most_seconds or math.inf, self.command.time_limit_seconds),
                memory_limit=self.device.memory_limit if self.device.name == "cpu" else None,
            )
        if _killed_from_outside(ended):
            raise KilledFromOutside
        metrics = self.command.metrics
        sources = (
            trainer_rows(records / TRAINER_ROWS, metrics),
            wandb_rows(records / WANDB_ROWS, metrics),
            printed.result(),
            self._read(values, output),
        )
        rows = next((rows for rows in sources if any(row.val_loss is not None for row in rows)), None)
        rows = rows or next(filter(None, sources), [])
        if (metric := self.metric) is not None:
            rows = [row if row.val_loss is None else replace(row, val_loss=metric.judged(row.val_loss)) for row in rows]
        found = self._judge(ended, tuple(rows), records, short=most_seconds is not None)
        return replace(found, resumed=unfinished)

    def _environment(self, records: Path) -> Mapping[str, str]:
        chosen = {RECORDS: str(records), "PYTHONUNBUFFERED": "1"}
        if "WANDB_MODE" not in os.environ:
            chosen |= {"WANDB_MODE": "offline", "WANDB_DIR": str(records)}  # the runs of a study are not for its server
        return chosen | {"CUDA_VISIBLE_DEVICES": ""} if self.device.name == "cpu" else chosen

    def _read(self, values: Mapping[str, str | tuple[str, ...]], output: Path) -> list[Row]:
        metrics = self.command.metrics
        if metrics.source in ("stdout", "wandb"):
            return []
        file = None if metrics.file is None else " ".join(parse(metrics.file).filled(values))
        return read_rows(metrics, file, output, Path(self.command.folder))

    def _judge(self, ended: Ended, rows: tuple[Row, ...], records: Path, *, short: bool) -> Attempt:
        refused = refused_write("\n".join(ended.tail), self.context.path) if ended.exit_code else None
        if refused is not None:
            raise refused
        processes = _processes(records)
        outcome, reason, certain = _outcome(ended, self.command, short=short)
        peak, measured = _memory(processes, ended)
        return Attempt(
            outcome, reason, rows, ended, peak, measured, _described(processes, self.device), certain=certain
        )


def placeholder_values(
    command: Command, filling: Filling, output: Path, *, resume: bool = False
) -> dict[str, str | tuple[str, ...]]:
    """The value of every placeholder."""
    layout = filling.layout
    epoch = (command.train_samples or 1) * layout.sequence_length
    return {
        "python": (sys.executable, launcher.__file__),
        "micro_batch_size": str(layout.micro_batch_size // command.devices),
        "grad_accum_steps": str(layout.grad_accum_steps),
        "batch_size": str(layout.global_batch_size),
        "global_batch_size": str(layout.global_batch_size),
        "tokens_per_step": str(layout.tokens_per_step),
        "learning_rate": f"{filling.learning_rate:.12g}",
        "steps": str(filling.steps),
        "tokens": str(filling.tokens),
        "epochs": str(max(1, round(filling.tokens / epoch))),
        "seconds": f"{filling.seconds:g}",
        "seed": str(filling.seed),
        "warmup_steps": str(filling.warmup_steps),
        "run_dir": str(output),
        "resume": "true" if resume else "false",
    }


def judged(found: Attempt, command: Command) -> tuple[Outcome, str]:
    """The outcome by the losses too: one that is not finite is divergence, and none at all is a failure."""
    losses = [loss for row in found.rows[-1:] for loss in (row.val_loss, row.train_loss) if loss is not None]
    loss = found.val_loss
    broken = any(not math.isfinite(loss) for loss in [*losses, *([] if loss is None else [loss])])
    if broken and found.outcome in (Outcome.COMPLETED, Outcome.FAILED):
        return Outcome.DIVERGED, str(RunFailure("The last loss that the script gave is not a finite number."))
    if found.outcome is Outcome.COMPLETED and loss is None:
        wanted = f"'{command.metrics.judged}' in {command.metrics.file or command.metrics.source}"
        judged_by = "validation loss" if command.metrics.metric is None else command.metrics.name
        failure = RunFailure(
            f"The command ended with exit code 0, but its {judged_by} was not found: {wanted}.{last_lines(found.ended)}"
        )
        return Outcome.FAILED, str(failure)
    return found.outcome, found.reason


def _outcome(ended: Ended, command: Command, *, short: bool) -> tuple[Outcome, str, bool]:
    """(outcome, reason, certain): an exit code of 0 is completed, evidence decides about memory, all else failed."""
    if ended.problem:
        return Outcome.FAILED, str(RunFailure(f"The command could not be started: {ended.problem}.")), True
    if ended.cut:
        if short:
            return Outcome.COMPLETED, "", True
        limit = f"{command.time_limit_seconds:g} seconds (command.time_limit_seconds)"
        return Outcome.FAILED, str(RunFailure(f"The command ran longer than {limit}.{last_lines(ended)}")), True
    if ended.exit_code == 0:
        return Outcome.COMPLETED, "", True
    evidence = evidence_of("\n".join(ended.tail))
    how = _how(ended)
    if evidence is not None:
        failure = RunFailure(f"The command ended {how}, out of memory: {_telling(ended)}")
        return Outcome.OUT_OF_MEMORY, str(failure), evidence is not Evidence.AMBIGUOUS
    missing = _MISSING_PACKAGE.search("\n".join(ended.tail))
    if missing is not None and parse(command.run).has("python"):
        failure = RunFailure(
            f"The command ended {how}: {{python}} is {sys.executable}, which has no {missing[1]}. Install it there, or "
            f"write the Python of your own environment in place of {{python}}.{last_lines(ended)}"
        )
        return Outcome.FAILED, str(failure), True
    return Outcome.FAILED, str(RunFailure(f"The command ended {how}.{last_lines(ended)}")), True


_MISSING_PACKAGE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")

_KILLED_CHILD = re.compile(r"Signal 9 \(SIGKILL\) received|exitcode\s*:\s*-9\b")
"""What torchrun says of a process that was killed; its own exit code is 1."""


def _killed_from_outside(ended: Ended) -> bool:
    """Whether it was killed, by the system or a person, without having said that an allocation failed.

    Without an exit code it was the supervisor that was killed.
    """
    text = "\n".join(ended.tail)
    if ended.cut or ended.problem or ended.exit_code == 0 or evidence_of(text) is not None:
        return False
    return ended.exit_code in (None, -signal.SIGKILL, 128 + signal.SIGKILL) or _KILLED_CHILD.search(text) is not None


def _how(ended: Ended) -> str:
    code = ended.exit_code
    return "without an exit code" if code is None else f"by signal {-code}" if code < 0 else f"with exit code {code}"


def _telling(ended: Ended) -> str:
    """The last line that shows that memory ran out."""
    return next((line.strip() for line in reversed(ended.tail) if evidence_of(line)), "")[:300]


def last_lines(ended: Ended) -> str:
    """What the command printed last, for the end of a sentence."""
    if not ended.tail:
        return " It printed nothing."
    lines = "\n".join(f"    {line[:200]}" for line in ended.tail)
    return f" Its last lines:\n{lines}"


def _processes(records: Path) -> list[dict[str, Any]]:
    found = []
    for file in sorted(records.glob("process-*.json")):
        try:
            found.append(dict(json.loads(file.read_text(encoding="utf-8"))))
        except ValueError:
            continue  # of a process that was killed while it wrote
    return found


def _memory(processes: list[dict[str, Any]], ended: Ended) -> tuple[int | None, MeasuredMemory]:
    """The peak of the process that needed most: of a device where one was used, else of the whole process."""
    on_device = [device["reserved_bytes"] for process in processes for device in process.get("devices", ())]
    if on_device:
        return max(on_device), "reserved"
    peaks = [process["peak_bytes"] for process in processes]
    return max([*peaks, *([ended.peak_bytes] if ended.peak_bytes else [])], default=None), "process"


def _described(processes: list[dict[str, Any]], device: DeviceSettings) -> Environment:
    """Where it ran, as far as the launcher could see."""
    main = max(processes, key=lambda process: process.get("cpu_seconds", 0.0), default={})
    versions = main.get("versions", {})
    devices = main.get("devices", ())
    return Environment(
        batchlab=__version__,
        python=main.get("python", platform.python_version()),
        numpy=versions.get("numpy", "") or version("numpy"),
        framework=" ".join(f"{name} {number}".strip() for name, number in versions.items() if name != "numpy"),
        platform=platform.platform(),
        processor=platform.processor() or platform.machine(),
        device=devices[0]["name"] if devices else device.name,
        device_memory_bytes=devices[0]["total_bytes"] if devices else None,
        cores=os.cpu_count() or 1,
        threads=device.threads,
    )
