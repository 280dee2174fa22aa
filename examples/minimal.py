import torch

import batchlab

x = torch.randn(10_000, 9, generator=torch.Generator().manual_seed(0))  # the ninth column is noise the model never sees
task = batchlab.task(
    model=lambda: torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.GELU(), torch.nn.Linear(64, 2)),
    loss=lambda model, x, y: torch.nn.functional.cross_entropy(model(x), y),
    train=(x[:9000, :8], x[:9000].square().sum(dim=1).gt(9).long()),
    valid=(x[9000:, :8], x[9000:].square().sum(dim=1).gt(9).long()),
)
