"""Mean teacher: a slow copy with dropout labels noisy inputs, and the student follows it."""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import batchlab


def network():
    return nn.Sequential(
        nn.Linear(256, 1024),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(1024, 10),
    )


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.student = network()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x):
        return self.student(x)


def loss(model, x, y):
    noisy = x + 0.3 * torch.randn_like(x)
    logits = model(noisy)
    with torch.no_grad():
        if model.training:
            for slow, fast in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
                slow.mul_(0.99).add_(fast, alpha=0.01)
        wanted = model.teacher(x + 0.3 * torch.randn_like(x))
    return cross_entropy(logits, y) + mse_loss(logits.softmax(-1), wanted.softmax(-1))


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(8192, 256, generator=generator), torch.randint(10, (8192,), generator=generator)
task = batchlab.task(
    model=Pair,
    loss=loss,
    train=(x[:7168], y[:7168]),
    valid=(x[7168:], y[7168:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
