"""A language model over bytes with a custom optimizer: batchlab study examples/language_model.py

The text is the source of this Python's standard library. The last tenth is held out.
"""

import sysconfig
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import batchlab


class RecurrentLM(nn.Module):
    """Embedding, a residual GRU block, a projection back to the 256 byte values."""

    def __init__(self, width: int = 64, blocks: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


class Block(nn.Module):
    """x + GRU(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, hidden):
        hidden = hidden + self.recurrent(self.norm(hidden))[0]
        return hidden + self.feed_forward(hidden)


def next_byte_loss(model, x, y):
    """Cross-entropy in nats, a mean over all bytes of the batch."""
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def optimizer(params, lr):  # or optimizer(model, lr), and a list of several: docs/api.md
    """Weight decay for matrices only; biases and norms learn twice as fast. batchlab keeps that ratio at every lr."""
    matrices = [p for p in params if p.ndim >= 2]
    vectors = [p for p in params if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0, "lr": 2 * lr}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def standard_library() -> np.ndarray:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return np.frombuffer(b"\n".join(file.read_bytes() for file in files), dtype=np.uint8)


text = standard_library()
task = batchlab.task(
    model=RecurrentLM,
    loss=next_byte_loss,
    optimizer=optimizer,
    train=text[: len(text) * 9 // 10],
    valid=text[len(text) * 9 // 10 :],
    sequence_length=32,
)
