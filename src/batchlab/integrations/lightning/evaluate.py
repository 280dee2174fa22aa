"""The held-out loss of a LightningModule: what its validation_step returns, or logs as val_loss. Or the metric it logs.

What Lightning would log is read instead: a number counts with the samples of its batch, and an object of torchmetrics
computes its value itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.data import extract_batch_size
from torch.utils.data import DataLoader
from torchmetrics import Metric as OwnMetric

from batchlab.core.errors import InputError
from batchlab.core.metric import Metric
from batchlab.runs.evaluation import Evaluation, evaluation_of
from batchlab.torch_ import random_state


def evaluate(
    module: lightning.LightningModule, loader: DataLoader[Any], by: str, metric: Metric | None = None
) -> Evaluation:
    """Mean loss over the samples of the loader, or the metric of all of them.

    Leaves the random state and the mode of the module as they were. Raises InputError where validation_step gives
    neither.
    """
    before, training = random_state.capture(module.device), module.training
    module.eval()
    try:
        with torch.no_grad(), module.trainer.precision_plugin.val_step_context():
            if metric is not None:
                return Evaluation(metric.judged(_measured(module, loader, metric.name, by)), None)
            return evaluation_of([_batch(module, batch, index, by) for index, batch in enumerate(loader)])
    finally:
        module.train(training)
        random_state.restore(before, module.device)


def _batch(module: lightning.LightningModule, batch: Any, index: int, by: str) -> tuple[float, float]:
    """(Σ losses, samples) of one batch."""
    with _logged(module) as logged:
        found, samples = _step(module, batch, index)
    return _number(_loss(found, logged, by)) * samples, samples


def _measured(module: lightning.LightningModule, loader: DataLoader[Any], name: str, by: str) -> float:
    """The metric of that name: as logged after the last batch, by torchmetrics, or as a mean over samples."""
    total = count = 0.0
    own: OwnMetric | None = None
    with _logged(module) as logged:
        module.on_validation_epoch_start()
        for index, batch in enumerate(loader):
            _, samples = _step(module, batch, index)
            value = logged.pop(name, None)
            if isinstance(value, OwnMetric):
                own = value
            elif value is not None:
                total, count = total + float(value) * samples, count + samples
        module.on_validation_epoch_end()
    if name in logged:
        return _number(logged[name])
    if own is not None:
        return _number(own)
    if count == 0:
        listed = f"; it logs {', '.join(logged)}" if logged else ", nor anything else"
        raise InputError(
            f"The Trainer of {by} monitors {name}, which the validation does not log{listed}. Log it in "
            "validation_step, or return the Trainer without this callback to judge by val_loss."
        )
    return total / count


def _step(module: lightning.LightningModule, batch: Any, index: int) -> tuple[Any, float]:
    """(what validation_step returns, samples) of one batch."""
    batch = module.trainer.strategy.batch_to_device(batch)
    return module.validation_step(batch, index), float(extract_batch_size(batch))


@contextmanager
def _logged(module: lightning.LightningModule) -> Iterator[dict[str, Any]]:
    """What the module logs meanwhile, by name; Lightning does not get it."""
    logged: dict[str, Any] = {}
    log, log_dict = module.log, module.log_dict
    module.log = lambda name, value, *_, **__: logged.update({name: value})
    module.log_dict = lambda values, *_, **__: logged.update(values)
    try:
        yield logged
    finally:
        module.log, module.log_dict = log, log_dict


def _number(value: Any) -> float:
    """A logged value. An object of torchmetrics begins anew afterwards."""
    if isinstance(value, OwnMetric):
        found = float(value.compute())
        value.reset()
        return found
    return float(value)


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
