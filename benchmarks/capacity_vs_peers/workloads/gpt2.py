"""Hugging Face's GPT-2 with 4 layers of width 256, its own vocabulary of 50,257, sequence 128, its own loss."""

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import batchlab

LENGTH = 128
CONFIG = GPT2Config(n_layer=4, n_embd=256, n_head=4, n_positions=LENGTH, use_cache=False)

random = np.random.default_rng(0)
task = batchlab.task(
    model=lambda: GPT2LMHeadModel(CONFIG),
    loss=lambda model, x, y: model(input_ids=x, labels=x).loss,
    train=random.integers(0, CONFIG.vocab_size, 1024 * LENGTH + 1),
    valid=random.integers(0, CONFIG.vocab_size, 256 * LENGTH + 1),
    sequence_length=LENGTH,
    count=lambda x, y: x.shape[0] * (x.shape[1] - 1),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
