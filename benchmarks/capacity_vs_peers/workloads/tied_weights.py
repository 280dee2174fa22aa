"""A language model whose output layer is its embedding."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

VOCABULARY, WIDTH, CONTEXT = 2_000, 96, 32


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.mask = nn.Buffer(torch.triu(torch.full((CONTEXT, CONTEXT), float("-inf")), 1))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.blocks(self.embed(x), mask=self.mask))


tokens = torch.randint(VOCABULARY, (1024 * CONTEXT + 1,), generator=torch.Generator().manual_seed(0)).numpy()
task = batchlab.task(
    model=Tied,
    loss=lambda model, x, y: cross_entropy(model(x).flatten(0, 1), y.flatten()),
    train=tokens[: 896 * CONTEXT + 1],
    valid=tokens[896 * CONTEXT :],
    sequence_length=CONTEXT,
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
