"""Model ensembling after torch's own tutorial: stacked weights, a skeleton on meta, functional_call under vmap."""

import copy

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import cross_entropy

import batchlab

MEMBERS = 6


def member():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


class Ensemble(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        members = [member() for _ in range(MEMBERS)]
        stacked, _ = stack_module_state(members)
        self.stacked = nn.ParameterDict({name.replace(".", "-"): nn.Parameter(p) for name, p in stacked.items()})
        self.skeleton = [copy.deepcopy(members[0]).to("meta")]  # in a list, so that it is no submodule

    def forward(self, x):
        weights = {name.replace("-", "."): value for name, value in self.stacked.items()}
        return vmap(lambda w, data: functional_call(self.skeleton[0], w, (data,)), in_dims=(0, None))(weights, x)


def loss(model, x, y):
    logits = model(x)
    return cross_entropy(logits.flatten(0, 1), y.repeat(MEMBERS))


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(8192, 784, generator=generator), torch.randint(10, (8192,), generator=generator)
task = batchlab.task(
    model=Ensemble,
    loss=loss,
    train=(x[:7168], y[:7168]),
    valid=(x[7168:], y[7168:]),
    optimizer=lambda params, lr: torch.optim.Adam(params, lr=lr),
)
