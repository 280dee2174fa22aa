"""A classifier in the Trainer of transformers that is judged by its accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, Trainer, TrainingArguments

args = TrainingArguments(output_dir="out", learning_rate=1e-3, num_train_epochs=3, metric_for_best_model="accuracy")


def samples(count: int, seed: int) -> list[dict[str, Any]]:
    """Whether the first of eight numbers is even."""
    ids = torch.randint(0, 16, (count, 8), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": int(row[0]) % 2} for row in ids]


def compute_metrics(found: Any) -> dict[str, float]:
    logits, labels = found
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


def make_trainer(args: TrainingArguments) -> Trainer:
    config = GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2, num_labels=2, pad_token_id=0)
    model = GPT2ForSequenceClassification(config)
    return Trainer(
        model=model,
        args=args,
        train_dataset=samples(200, 0),
        eval_dataset=samples(64, 1),
        compute_metrics=compute_metrics,
    )
