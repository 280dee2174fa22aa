"""Segmentation with transposed convolutions, a mask of ignored pixels picked out by indexing, and a Dice term."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import batchlab

CLASSES = 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.b = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU())
        self.up = nn.ConvTranspose2d(48, 24, 2, stride=2)
        self.head = nn.Conv2d(48, CLASSES, 1)

    def forward(self, x):
        high = self.a(x)
        return self.head(torch.cat([high, self.up(self.b(high))], 1))


def loss(model, x, y):
    logits = model(x).permute(0, 2, 3, 1)
    seen = y >= 0
    logits, target = logits[seen], y[seen]
    share = (logits.softmax(-1) * one_hot(target, CLASSES)).mean()
    return cross_entropy(logits, target) - share


generator = torch.Generator().manual_seed(0)
x = torch.rand(512, 3, 48, 48, generator=generator)
y = torch.randint(-1, CLASSES, (512, 48, 48), generator=generator)
task = batchlab.task(
    model=Net,
    loss=loss,
    train=(x[:384], y[:384]),
    valid=(x[384:], y[384:]),
    count=lambda x, y: (y >= 0).sum(),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
