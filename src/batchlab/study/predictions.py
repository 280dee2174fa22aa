"""Predictions for other cards, kept in the folder of a study: what was traced for one is not traced again.

A prediction is a study of its own, of traces alone. Its folder is named by everything that its traces depend on, so an
edit of the task, another card or another version of a library begins a new one.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from batchlab.core.experiment import Experiment
from batchlab.core.files import Files
from batchlab.core.record import TaskInfo
from batchlab.storage.atomic import remove_tree
from batchlab.storage.files import DISK

KEPT = 16
"""Predictions in one study's folder; the oldest are removed."""


def prediction_folder(
    study: Path, experiment: Experiment, task_info: TaskInfo, card_bytes: int, files: Files = DISK
) -> Path:
    """Where the traces of this prediction are, or will be."""
    content = [
        experiment.model_dump(mode="json"),
        task_info.data_digest,
        task_info.code,
        card_bytes,
        [_version(package) for package in ("batchlab", task_info.framework or "")],
    ]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    folder = study / "cache" / "predictions"
    _make_room(folder, digest, files)
    return folder / digest


def _make_room(folder: Path, digest: str, files: Files) -> None:
    """Remove the oldest predictions, as far as this one needs their place."""
    if files.state(folder) is None:
        return
    others = [folder / name for name in files.names(folder) if name != digest]
    age = {path: state.mtime_ns for path in others if (state := files.state(path)) is not None}
    for path in sorted(age, key=age.__getitem__)[: max(len(age) - KEPT + 1, 0)]:
        remove_tree(path, files)


def _version(package: str) -> str:
    try:
        return version(package) if package else ""
    except PackageNotFoundError:
        return ""
