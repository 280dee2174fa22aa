"""A recommender: nearly all parameters are in one dense embedding table, so the optimizer's step is the peak."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import batchlab

ITEMS, FIELDS, WIDTH = 120_000, 32, 32


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 8 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, items):
        return self.head(self.encoder(self.items(items)).mean(1)).squeeze(1)


generator = torch.Generator().manual_seed(0)
x = torch.randint(ITEMS, (4096, FIELDS), generator=generator)
y = torch.rand(4096, generator=generator).round()
task = batchlab.task(
    model=Recommender,
    loss=lambda model, x, y: binary_cross_entropy_with_logits(model(x), y),
    train=(x[:3584], y[:3584]),
    valid=(x[3584:], y[3584:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
