"""Describes the parameter groups of a person's optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from batchlab.core.optimizer_group import OptimizerGroup


def described(optimizer: torch.optim.Optimizer, ratios: Sequence[float]) -> list[OptimizerGroup]:
    """The groups that train something. ratios: their learning rates ÷ the one that is swept."""
    return [
        OptimizerGroup(
            optimizer=type(optimizer).__name__,
            learning_rate_ratio=ratio,
            weight_decay=float(group["weight_decay"]) if "weight_decay" in group else None,
            beta1=float(group["betas"][0]) if "betas" in group else None,
            beta2=float(group["betas"][1]) if "betas" in group else None,
            epsilon=float(group["eps"]) if "betas" in group and "eps" in group else None,
            parameter_count=sum(parameter.numel() for parameter in group["params"] if parameter.requires_grad),
        )
        for group, ratio in zip(optimizer.param_groups, ratios, strict=True)
        if any(parameter.requires_grad for parameter in group["params"])
    ]


def family(optimizer: torch.optim.Optimizer) -> Literal["adam", "sgd", "other"]:
    """'adam' if all groups have betas, 'sgd' if all have momentum, else 'other'."""
    if all("betas" in group for group in optimizer.param_groups):
        return "adam"
    return "sgd" if all("momentum" in group for group in optimizer.param_groups) else "other"
