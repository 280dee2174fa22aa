"""The held-out loss of a Trainer's model: a mean over targets, not over batches. Or the metric it is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import Subset
from transformers import Trainer

from batchlab.core.errors import InputError
from batchlab.core.metric import Metric
from batchlab.runs.evaluation import Evaluation, evaluation_of
from batchlab.torch_ import random_state


def held_out(trainer: Trainer, samples: int) -> Any:
    """The first `samples` held-out samples, in their order."""
    data = trainer.eval_dataset
    if len(data) <= samples:
        return data
    return data.select(range(samples)) if hasattr(data, "select") else Subset(data, range(samples))


def evaluate(trainer: Trainer, model: torch.nn.Module, samples: int, metric: Metric | None = None) -> Evaluation:
    """Mean loss of the first held-out samples. Leaves the random state and the mode of the model as they were.

    Each batch's loss, which is a mean over its targets, is weighted by how many those are. With a metric: what the
    Trainer's compute_metrics makes of these samples. Raises InputError where it does not give that metric.
    """
    before, training = random_state.capture(trainer.args.device), model.training
    model.eval()
    try:
        if metric is not None:
            return Evaluation(metric.judged(_measured(trainer, samples, metric.name)), None)
        sums = []
        for inputs in trainer.get_eval_dataloader(held_out(trainer, samples)):
            loss, _, _ = trainer.prediction_step(model, inputs, prediction_loss_only=True)
            count = targets(trainer, inputs)
            sums.append((float(loss.mean()) * count, count))
        return evaluation_of(sums)
    finally:
        model.train(training)
        random_state.restore(before, trainer.args.device)


def _measured(trainer: Trainer, samples: int, name: str) -> float:
    found = trainer.evaluation_loop(trainer.get_eval_dataloader(held_out(trainer, samples)), "evaluation").metrics
    if f"eval_{name}" not in found:
        given = ", ".join(key.removeprefix("eval_") for key in found)
        raise InputError(f"metric_for_best_model is {name}, which compute_metrics does not give; it gives {given}.")
    return float(found[f"eval_{name}"])


def predict(trainer: Trainer, samples: int) -> None:
    """Gather the predictions of so many held-out samples, as a metric needs them, without computing one."""
    compute, trainer.compute_metrics = trainer.compute_metrics, None
    try:
        loader = trainer.get_eval_dataloader(held_out(trainer, samples))
        trainer.evaluation_loop(loader, "evaluation", prediction_loss_only=False)
    finally:
        trainer.compute_metrics = compute


def targets(trainer: Trainer, inputs: Mapping[str, Any]) -> float:
    """How many targets a batch's mean loss averages over: labels that count, else samples."""
    counted = trainer._get_num_items_in_batch([inputs], trainer.args.device)
    return float(counted) if counted is not None else float(batch_size(inputs))


def batch_size(inputs: Mapping[str, Any]) -> int:
    """Samples in a batch: the first axis of its first tensor."""
    return next(len(value) for value in inputs.values() if isinstance(value, torch.Tensor) and value.ndim)
