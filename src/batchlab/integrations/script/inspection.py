"""What can be known about a script without running it."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from batchlab.core.batch import Unit
from batchlab.core.command import Command
from batchlab.core.errors import InputError, quote
from batchlab.core.record import TaskInfo
from batchlab.core.spec import InspectSpec
from batchlab.integrations.script.metrics import Printed
from batchlab.integrations.script.template import Template, parse, script_of, template_of
from batchlab.runs.workload import hash_files

MOST_FILES = 1000
"""Of a person's source files that are watched for edits."""


def inspect(command: Command, spec: InspectSpec) -> TaskInfo:
    """Describe the command. Raises InputError where it cannot be a training command."""
    template = template_of(command)
    if command.capacity.run is not None:
        parse(command.capacity.run)
    if command.metrics.file is not None:
        parse(command.metrics.file)
    Printed.of(command.metrics)
    require_program(template, Path(command.folder))
    device = resolve_device(spec.device.name)
    name = spec.optimizer.config.name
    return TaskInfo(
        unit=Unit.TOKENS if command.sequence_length else Unit.SAMPLES,
        sequence_length=command.sequence_length or 1,
        train_samples=command.train_samples,
        valid_samples=None,
        parameter_count=None,
        optimizer_family="sgd" if name == "sgd" else "adam",
        integration="script",
        own_optimizer=True,
        settings=_metric_settings(command),
        data_source=script_of(template),
        data_digest="",
        code=hash_files(source_files(template, Path(command.folder))),
        device=device,
        device_memory_bytes=device_memory(device),
    )


def _metric_settings(command: Command) -> dict[str, Any]:
    metric = command.metrics.judged_by
    if metric is None:
        return {}
    return {"evaluation": {"metric": metric.name, "metric_better": metric.better, "metric_best": metric.best}}


def require_program(template: Template, folder: Path) -> None:
    """Raise InputError where the program, or the script after {python}, does not exist."""
    program = template.words[0]
    if program == "{python}":
        script = template.words[1] if len(template.words) > 1 else ""
        if script != "-m" and not (folder / script).is_file():
            raise InputError(
                f"command.run starts {quote(script)} with {{python}}, but there is no such file in {folder}."
            )
    elif shutil.which(program, path=None) is None and not (folder / program).is_file():
        raise InputError(f"command.run starts {quote(program)}, which is no program here.")


def source_files(template: Template, folder: Path) -> list[Path]:
    """The files named in the command, and what its Python files import from the same folders, by their source."""
    found: dict[Path, None] = {}
    waiting = [path for word in template.words if (path := (folder / word).resolve()).is_file()]
    while waiting and len(found) < MOST_FILES:
        path = waiting.pop()
        if path in found or not path.is_relative_to(folder.resolve()):
            continue
        found[path] = None
        if path.suffix == ".py":
            waiting += _imported(path)
    return sorted(found)


def _imported(path: Path) -> list[Path]:
    """Files of the modules that a file imports, as far as they lie in its folder."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    places = [path.parent / Path(*name.split(".")) for name in names]
    files = [one for place in places for one in (place.with_suffix(".py"), place / "__init__.py")]
    return [file.resolve() for file in files if file.is_file()]


def resolve_device(name: str) -> str:
    """The device that the script will find, without importing its framework."""
    if name != "auto":
        return "cuda:0" if name == "cuda" else name
    if _query("name"):
        return "cuda:0"
    return "mps" if sys.platform == "darwin" else "cpu"


def device_memory(device: str) -> int | None:
    """All memory of a CUDA device; None where its driver does not tell."""
    if not device.startswith("cuda"):
        return None
    totals = _query("memory.total").split()
    index = int(device.partition(":")[2] or 0)
    return int(totals[index]) * 2**20 if index < len(totals) else None


def _query(field: str) -> str:
    """What the Nvidia driver's own program says about every device; empty where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
