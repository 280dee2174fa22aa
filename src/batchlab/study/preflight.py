"""What could stop a long run, looked for before it begins: the task, versions, devices, memory, disk, locks."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

import batchlab
from batchlab.core.errors import InputError
from batchlab.core.format import format_bytes, format_plural
from batchlab.core.record import TaskInfo
from batchlab.core.spec import TrainSpec
from batchlab.engines.cards import visible_cards
from batchlab.plan.safeguards import CheckName
from batchlab.plan.train_spec import require_task
from batchlab.plan.training_plan import TrainingPlan
from batchlab.runs.workload import digest_of
from batchlab.storage.lock import require_locks


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was looked at. Where it is `wrong`, the run must not begin."""

    name: CheckName
    status: Literal["ok", "differs", "wrong"]
    found: str
    expected: str = ""


def preflight(plan: TrainingPlan, spec: TrainSpec, here: TaskInfo, framework: str, folder: Path) -> list[Item]:
    """Every check. here: the task as a worker has just loaded it; framework: the version that loaded it."""
    task = require_task(plan)
    workload, devices = task.workload, spec.layout.data_parallel_size
    return [
        _same("data", workload.data_digest, here.data_digest, wrong=True),
        _same("code", workload.code_digest, digest_of(here.code), wrong=False),
        _same("batchlab", plan.made_from.batchlab, batchlab.__version__, wrong=False),
        _same("framework", task.framework, framework, wrong=False),
        _devices(spec.device.name, devices),
        _memory(spec.device.name, devices, plan.performance_targets.peak_bytes, here.device_memory_bytes),
        _disk(folder, plan.checkpoint_strategy.disk_bytes if plan.checkpoint_strategy else None),
        _locks(folder),
    ]


def require_ready(items: list[Item]) -> None:
    """Raise InputError naming everything that is wrong."""
    wrong = [item for item in items if item.status == "wrong"]
    if wrong:
        what = "; ".join(f"{item.name} ({item.found}; the plan needs {item.expected})" for item in wrong)
        raise InputError(f"The run was not begun because of {what}. Put that right, or make a plan for this machine.")


def _same(name: CheckName, planned: str, here: str, *, wrong: bool) -> Item:
    if planned == here or not planned:
        return Item(name, "ok", here[:40])
    return Item(name, "wrong" if wrong else "differs", here[:40], planned[:40])


def _devices(name: str, wanted: int) -> Item:
    if name != "cuda":
        return Item("devices", "ok", f"{wanted} × {name}")
    cards = len(visible_cards())
    return Item("devices", "ok" if cards >= wanted else "wrong", format_plural(cards, "CUDA device"), f"{wanted}")


def _memory(name: str, devices: int, peak: int | None, device_bytes: int | None) -> Item:
    free = psutil.virtual_memory().available // devices if name == "cpu" else device_bytes
    if peak is None or free is None:
        return Item("memory", "ok", format_bytes(free) if free else "?")
    return Item("memory", "ok" if peak <= free else "wrong", format_bytes(free), format_bytes(peak))


def _disk(folder: Path, needed: int | None) -> Item:
    existing = next(one for one in (folder, *folder.parents) if one.is_dir())
    free = shutil.disk_usage(existing).free
    needed = needed or 0
    return Item("disk", "ok" if free >= needed else "wrong", format_bytes(free), format_bytes(needed))


def _locks(folder: Path) -> Item:
    require_locks(next(one for one in (folder, *folder.parents) if one.is_dir()))
    return Item("locks", "ok", "")
