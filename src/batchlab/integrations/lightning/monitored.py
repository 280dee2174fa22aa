"""The metric of a person's own: what the Trainer that `make` returns keeps the best checkpoint by, or stops by."""

from __future__ import annotations

from typing import Any

import lightning
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint


def monitored(trainer: lightning.Trainer | None) -> dict[str, Any]:
    """The settings of a study that judges by it; none where it is a loss, or a quantity of the training.

    ModelCheckpoint(monitor="val_accuracy", mode="max") comes before EarlyStopping, since the best
    checkpoint is what is kept.
    """
    callbacks = [] if trainer is None else trainer.callbacks
    for kind in (ModelCheckpoint, EarlyStopping):
        for callback in callbacks:
            name = callback.monitor if isinstance(callback, kind) else None
            if name and "loss" not in name and not name.startswith("train"):
                return {"metric": name, "metric_better": "higher" if callback.mode == "max" else "lower"}
    return {}
