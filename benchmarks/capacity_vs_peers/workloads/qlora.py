"""A frozen base in int8 with one scale per row, dequantised in every forward pass, and trained adapters beside it."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, linear

import batchlab

VOCABULARY, WIDTH, CONTEXT, RANK = 1_000, 192, 64, 4


class Quantised(nn.Module):
    def __init__(self, inputs, outputs) -> None:
        super().__init__()
        weight = torch.randn(outputs, inputs) * inputs**-0.5
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.a = nn.Parameter(torch.randn(RANK, inputs) * 0.02)
        self.b = nn.Parameter(torch.zeros(outputs, RANK))

    def forward(self, x):
        return linear(x, self.weight.float() * self.scale) + linear(linear(x, self.a), self.b)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(
            nn.ModuleList((Quantised(WIDTH, 4 * WIDTH), Quantised(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)))
            for _ in range(4)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for up, down, norm in self.layers:
            x = norm(x + down(gelu(up(x))))
        return self.head(x)


tokens = torch.randint(VOCABULARY, (1024 * CONTEXT + 1,), generator=torch.Generator().manual_seed(0)).numpy()
task = batchlab.task(
    model=Network,
    loss=lambda model, x, y: cross_entropy(model(x).flatten(0, 1), y.flatten()),
    train=tokens[: 896 * CONTEXT + 1],
    valid=tokens[896 * CONTEXT :],
    sequence_length=CONTEXT,
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr, weight_decay=0.0),
)
