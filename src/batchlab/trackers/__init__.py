"""Experiment trackers that show a study's runs as well, live or replayed. Each one is an optional extra."""

from __future__ import annotations

import importlib
from pathlib import Path

from batchlab.core.errors import InputError, did_you_mean
from batchlab.core.protocols import Tracker

TRACKERS = {
    "tensorboard": "batchlab.trackers.tensorboard:TensorBoardTracker",
    "wandb": "batchlab.trackers.wandb:WandbTracker",
}


def open_tracker(name: str, folder: Path, study: str, *, online: bool = False) -> Tracker:
    """The tracker of that name, writing below the study's `folder`; `online`: also uploading, where it can.

    Raises InputError for an unknown name, and where its package is missing, with the command that installs it.
    """
    if name not in TRACKERS:
        raise InputError(
            f"There is no tracker {name!r}.{did_you_mean(name, TRACKERS)} Possible: {', '.join(TRACKERS)}."
        )
    module, _, attribute = TRACKERS[name].partition(":")
    try:
        tracker: Tracker = getattr(importlib.import_module(module), attribute)(folder, study, online=online)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name:
            raise
        raise InputError(f"{name} is not installed; run: pip install 'batchlab[{name}]'.") from None
    return tracker
