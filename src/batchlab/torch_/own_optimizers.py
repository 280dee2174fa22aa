"""The optimizers that a task brings: built on the model, and tested for what a sweep of the learning rate needs.

Every parameter group must be proportional to the learning rate it is given, and every trainable parameter must be in
one group of one optimizer.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from batchlab.core.errors import InputError
from batchlab.core.task import OptimizerFactory, optimizer_argument

REFERENCE_LEARNING_RATE = 1.0
"""Passed to the task's `optimizer(params, lr)`, so that the learning rate of each group equals its ratio to `lr`."""


def build(
    model: nn.Module, factory: OptimizerFactory, *, fused: bool
) -> tuple[list[torch.optim.Optimizer], list[float | None]]:
    """The optimizers, and the ratio of every group's learning rate to the given one: None where it trains nothing.

    They are built twice, at two learning rates, to see that the groups follow it.
    """
    optimizers, others = (_call(model, factory, rate) for rate in (REFERENCE_LEARNING_RATE, _OTHER_LEARNING_RATE))
    _require_each_parameter_once(model, optimizers)
    ratios = _ratios(optimizers, others)
    return (_fused(optimizers) if fused else optimizers), ratios


_OTHER_LEARNING_RATE = REFERENCE_LEARNING_RATE / 2


def _call(model: nn.Module, factory: OptimizerFactory, learning_rate: float) -> list[torch.optim.Optimizer]:
    if optimizer_argument(factory) == "model":
        made = factory(model, learning_rate)
    else:
        made = factory([parameter for parameter in model.parameters() if parameter.requires_grad], learning_rate)
    optimizers = list(made) if isinstance(made, list | tuple) else [made]
    if not optimizers or not all(isinstance(one, torch.optim.Optimizer) for one in optimizers):
        content = ", ".join(type(one).__name__ for one in optimizers)
        raise InputError(
            f"optimizer=… returned {f'[{content}]' if isinstance(made, list | tuple) else content}; return a "
            "torch.optim.Optimizer, or a list of them, built on the given params or model and on lr."
        )
    return optimizers


def _require_each_parameter_once(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Torch itself only refuses a parameter that is in two groups of one optimizer."""
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters() if p.requires_grad}
    held: dict[Tensor, list[str]] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                held.setdefault(parameter, []).append(type(optimizer).__name__)
    for parameter, holders in held.items():
        if parameter in names and len(holders) > 1:
            raise InputError(
                f"optimizer=…: {names[parameter]} is in {' and '.join(holders)} at once; give every parameter to one "
                "optimizer, once."
            )
        if parameter not in names and parameter.requires_grad:
            raise InputError(
                f"optimizer=…: {holders[0]} has a tensor of shape {tuple(parameter.shape)} that is no parameter of "
                "the model; build the optimizer on what it is given."
            )
    if missing := [name for parameter, name in names.items() if parameter not in held]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"optimizer=…: no optimizer has {missing[0]}{more}, of {len(names)} trainable parameters; give every one "
            "to an optimizer, or freeze it in model=… with requires_grad_(False)."
        )


def _ratios(optimizers: Sequence[torch.optim.Optimizer], others: Sequence[torch.optim.Optimizer]) -> list[float | None]:
    """Learning rate of every group ÷ the given one. `others` were built at half of it."""
    if [len(one.param_groups) for one in optimizers] != [len(other.param_groups) for other in others]:
        raise InputError(
            "optimizer=… returned other parameter groups at another learning rate; build the same ones at every lr."
        )
    ratios = []
    for optimizer, other in zip(optimizers, others, strict=True):
        for index, (group, half) in enumerate(zip(optimizer.param_groups, other.param_groups, strict=True)):
            trains = any(parameter.requires_grad for parameter in group["params"])
            ratios.append(_ratio(f"parameter group {index} of {type(optimizer).__name__}", group, half, trains=trains))
    return ratios


def _ratio(name: str, group: dict[str, Any], half: dict[str, Any], *, trains: bool) -> float | None:
    if not trains:
        return None
    if group.get("lr") is None:
        raise InputError(
            f"optimizer=…: {name} has no learning rate to sweep; switch off its own schedule and pass lr=lr."
        )
    ratio = float(group["lr"]) / REFERENCE_LEARNING_RATE
    if not math.isclose(float(half["lr"]), ratio * _OTHER_LEARNING_RATE, rel_tol=1e-6):
        raise InputError(
            f"optimizer=…: {name} does not follow the learning rate it is given (it has {float(half['lr']):g} at "
            f"lr={_OTHER_LEARNING_RATE:g} and {ratio:g} at lr={REFERENCE_LEARNING_RATE:g}); pass lr=lr, or a multiple "
            "of it."
        )
    return ratio


def _fused(optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.optim.Optimizer]:
    """Those that have a fused step, rebuilt with it before their first step; the others as they are."""
    able = ["fused" in inspect.signature(type(optimizer)).parameters for optimizer in optimizers]
    if not any(able):
        names = " and ".join(type(optimizer).__name__ for optimizer in optimizers)
        raise InputError(
            f"{names} has no fused step; use torch's Adam, AdamW, SGD or Adagrad, or remove "
            "fused_optimizer from the memory optimizations."
        )
    return [_rebuilt(one) if fuses else one for one, fuses in zip(optimizers, able, strict=True)]


def _rebuilt(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    possible = inspect.signature(type(optimizer)).parameters
    defaults = {name: value for name, value in optimizer.defaults.items() if name in possible}
    groups = [{**group, "fused": True, "foreach": None} for group in optimizer.param_groups]
    made: torch.optim.Optimizer = type(optimizer)(groups, **{**defaults, "fused": True, "foreach": None})
    return made
