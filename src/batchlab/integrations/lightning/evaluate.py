"""The held-out loss of a LightningModule: what its validation_step returns, or logs as val_loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.data import extract_batch_size
from torch.utils.data import DataLoader

from batchlab.core.errors import InputError
from batchlab.runs.evaluation import Evaluation, evaluation_of
from batchlab.torch_ import random_state


def evaluate(module: lightning.LightningModule, loader: DataLoader[Any], by: str) -> Evaluation:
    """Mean over the samples of the loader. Leaves the random state and the mode of the module as they were."""
    before, training = random_state.capture(module.device), module.training
    module.eval()
    try:
        with torch.no_grad(), module.trainer.precision_plugin.val_step_context():
            return evaluation_of([_batch(module, batch, index, by) for index, batch in enumerate(loader)])
    finally:
        module.train(training)
        random_state.restore(before, module.device)


def _batch(module: lightning.LightningModule, batch: Any, index: int, by: str) -> tuple[float, float]:
    """(Σ losses, samples) of one batch."""
    logged: dict[str, Any] = {}
    log, log_dict = module.log, module.log_dict
    module.log = lambda name, value, *_, **__: logged.update({name: value})
    module.log_dict = lambda values, *_, **__: logged.update(values)
    try:
        batch = module.trainer.strategy.batch_to_device(batch)
        found = module.validation_step(batch, index)
    finally:
        module.log, module.log_dict = log, log_dict
    samples = float(extract_batch_size(batch))
    return float(_loss(found, logged, by)) * samples, samples


def _loss(found: Any, logged: Mapping[str, Any], by: str) -> Any:
    if isinstance(found, Mapping):
        found = found.get("loss")
    for value in (found, logged.get("val_loss"), logged.get("val/loss"), logged.get("valid_loss")):
        if value is not None:
            return value
    listed = f"; it logs {', '.join(logged)}" if logged else ""
    raise InputError(
        f"validation_step of {by} neither returns a loss nor logs val_loss{listed}. Batch sizes are compared by their "
        "loss on held-out data: return the loss from validation_step."
    )
