"""A transformer encoder whose layers are recomputed in the backward pass."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import batchlab

WIDTH, TOKENS, LAYERS = 64, 64, 4


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(32, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True) for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, x):
        x = self.inputs(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.training else layer(x)
        return self.head(x.mean(1))


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(512, TOKENS, 32, generator=generator), torch.randint(20, (512,), generator=generator)
task = batchlab.task(
    model=Encoder,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(x[:384], y[:384]),
    valid=(x[384:], y[384:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
