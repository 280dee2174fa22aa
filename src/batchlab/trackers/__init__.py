"""Other people's views of a study: what its runs write is shown there as well, live or replayed. Each is an extra."""

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
    """The tracker of that name, writing below the study's `folder`; `online`: sending, too, where it can.

    InputError for a name that is none, or with the install command where its package is missing.
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
