"""Layers with a hand-written autograd function that keeps only its input and recomputes the rest."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_non_differentiable()
        return torch.sign(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(8 if i == 0 else 48, 48, 5, padding=2) for i in range(5))
        self.head = nn.Linear(48, 12)

    def forward(self, x):
        for conv in self.convs:
            x = Swish.apply(conv(x))
        return self.head(Straight.apply(x).mean(-1))


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(1024, 8, 512, generator=generator), torch.randint(12, (1024,), generator=generator)
task = batchlab.task(
    model=Network,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(x[:896], y[:896]),
    valid=(x[896:], y[896:]),
    optimizer=lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9),
)
