"""Trains a tiny GPT-2 on sequences in memory with the Hugging Face Trainer."""

from __future__ import annotations

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out",
    learning_rate=1e-3,
    per_device_train_batch_size=8,
    num_train_epochs=3,
    warmup_steps=0.1,
    lr_scheduler_type="cosine",
    weight_decay=0.01,
)


def samples(count: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 4, (count, 1), generator=generator)
    start = torch.randint(0, 61, (count, 1), generator=generator)
    ids = (start + steps * torch.arange(32)) % 61
    noise = torch.rand(count, 32, generator=generator) < 0.1
    ids = torch.where(noise, torch.randint(0, 61, (count, 32), generator=generator), ids)
    mask = torch.ones_like(ids)
    return Dataset.from_dict({"input_ids": ids.tolist(), "attention_mask": mask.tolist(), "labels": ids.tolist()})


def make_trainer(args: TrainingArguments) -> Trainer:
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    return Trainer(model=model, args=args, train_dataset=samples(250, 0), eval_dataset=samples(64, 1))


if __name__ == "__main__":
    make_trainer(args).train()
