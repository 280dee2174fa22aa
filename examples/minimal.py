import torch

import batchlab

x = torch.randn(10_000, 8, generator=torch.Generator().manual_seed(0))
task = batchlab.task(
    model=lambda: torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)),
    loss=lambda model, x, y: torch.nn.functional.mse_loss(model(x), y),
    train=(x[:9000], x[:9000].sum(dim=1, keepdim=True).sin()),
    valid=(x[9000:], x[9000:].sum(dim=1, keepdim=True).sin()),
)
