"""The held-out loss of a Trainer's model: a mean over targets, not over batches as its own eval_loss is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import Subset
from transformers import Trainer

from batchlab.runs.evaluation import Evaluation, evaluation_of
from batchlab.torch_ import random_state


def held_out(trainer: Trainer, samples: int) -> Any:
    """The first `samples` held-out samples, in their order."""
    data = trainer.eval_dataset
    if len(data) <= samples:
        return data
    return data.select(range(samples)) if hasattr(data, "select") else Subset(data, range(samples))


def evaluate(trainer: Trainer, model: torch.nn.Module, samples: int) -> Evaluation:
    """Mean loss of the first held-out samples. Leaves the random state and the mode of the model as they were.

    Each batch's loss, which is a mean over its targets, is weighted by how many those are.
    """
    before, training = random_state.capture(trainer.args.device), model.training
    model.eval()
    try:
        sums = []
        for inputs in trainer.get_eval_dataloader(held_out(trainer, samples)):
            loss, _, _ = trainer.prediction_step(model, inputs, prediction_loss_only=True)
            count = targets(trainer, inputs)
            sums.append((float(loss.mean()) * count, count))
        return evaluation_of(sums)
    finally:
        model.train(training)
        random_state.restore(before, trainer.args.device)


def targets(trainer: Trainer, inputs: Mapping[str, Any]) -> float:
    """How many targets a batch's mean loss averages over: labels that count, else samples."""
    counted = trainer._get_num_items_in_batch([inputs], trainer.args.device)
    return float(counted) if counted is not None else float(batch_size(inputs))


def batch_size(inputs: Mapping[str, Any]) -> int:
    """Samples in a batch: the first axis of its first tensor."""
    return next(len(value) for value in inputs.values() if isinstance(value, torch.Tensor) and value.ndim)
