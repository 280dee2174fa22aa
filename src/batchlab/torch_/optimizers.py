"""The optimizers of a run: the task's own or a built-in one, with groups that follow learning rate and batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from batchlab.core.errors import InputError
from batchlab.core.experiment import AcrossBatch, OptimizerConfig
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.spec import OptimizerSettings
from batchlab.core.task import OptimizerFactory
from batchlab.scaling import beta2_at, epsilon_at, weight_decay_at
from batchlab.torch_ import own_optimizers

BATCH_DEPENDENT = ("betas", "eps", "weight_decay")
"""Settings of a parameter group that the across-batch rule may change."""


class GroupedOptimizer:
    """One or several torch optimizers, stepped as one. Their groups keep the ratios of their learning rates."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], ratios: Sequence[float | None]) -> None:
        """`ratios` are those of all groups in order; None for a group with nothing to train, which is left alone."""
        self.optimizers = tuple(optimizers)
        self._ratios = tuple(ratios)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers in order."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set each group to ratio · learning_rate. Tensors are filled in place, as captured graphs require."""
        for group, ratio in zip(self.groups, self._ratios, strict=True):
            if ratio is None:
                continue
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(ratio * learning_rate)
            else:
                group["lr"] = ratio * learning_rate

    def step(self) -> None:
        """One step of every optimizer."""
        for optimizer in self.optimizers:
            optimizer.step()

    def with_gradients(self) -> list[torch.optim.Optimizer]:
        """The optimizers that have a gradient to step by."""
        return [
            optimizer
            for optimizer in self.optimizers
            if any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])
        ]

    def follow_defaults_of(self, device: torch.device) -> None:
        """Use the defaults of `device`: on CUDA, torch optimizers use `foreach` unless set otherwise."""
        for group in self.groups:
            if device.type == "cuda" and "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = True

    def state(self) -> list[dict[str, Any]]:
        """Moments, step counts and settings of every optimizer."""
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def state_tensors(self) -> list[Tensor]:
        """All tensors in the state of every optimizer."""
        states = [list(optimizer.state.values()) for optimizer in self.optimizers]
        return [leaf for leaf in tree_leaves(states) if isinstance(leaf, Tensor)]

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Load moments and step counts from `state()`.

        Settings that depend on the batch size are kept, because a run may continue another run at another batch size.
        """
        built = [{name: group[name] for name in BATCH_DEPENDENT if name in group} for group in self.groups]
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict(state)
        for group, values in zip(self.groups, built, strict=True):
            group.update(values)

    def described(self, names: Mapping[Tensor, str]) -> list[tuple[OptimizerGroup, tuple[str, ...]]]:
        """Every group that has parameters among `names`, with their names."""
        classes = [type(optimizer).__name__ for optimizer in self.optimizers for _ in optimizer.param_groups]
        found = []
        for name, group, ratio in zip(classes, self.groups, self._ratios, strict=True):
            parameters = [parameter for parameter in group["params"] if parameter in names]
            if ratio is not None and parameters:
                described = OptimizerGroup(
                    optimizer=name,
                    learning_rate_ratio=ratio,
                    weight_decay=float(group["weight_decay"]) if "weight_decay" in group else None,
                    beta1=float(group["betas"][0]) if "betas" in group else None,
                    beta2=float(group["betas"][1]) if "betas" in group else None,
                    epsilon=float(group["eps"]) if "betas" in group and "eps" in group else None,
                    sized_like_adamw=group.get("adjust_lr_fn") == "match_rms_adamw",
                    parameter_count=sum(parameter.numel() for parameter in parameters),
                )
                found.append((described, tuple(names[parameter] for parameter in parameters)))
        return found

    @property
    def family(self) -> Literal["adam", "sgd", "other"]:
        """'adam' if all groups have betas, 'sgd' if all have momentum and dampening, else 'other'."""
        if all("betas" in group for group in self.groups):
            return "adam"
        return "sgd" if all("momentum" in group and "dampening" in group for group in self.groups) else "other"


def build(
    model: nn.Module,
    factory: OptimizerFactory | None,
    settings: OptimizerSettings,
    device: torch.device,
    fused: bool = False,
    steps_left_out: bool = False,
) -> GroupedOptimizer:
    """The task's optimizers from `factory`, or AdamW, Adam or SGD as configured, with settings for this batch size.

    `fused` makes the task's optimizers step in one kernel; the built-in ones always do, except SGD where
    `steps_left_out`: its fused kernel then begins with a momentum that nobody has set (torch 2.13).

    Raises InputError if none of them supports that, if they do not follow the learning rate they are given, or do not
    hold every trainable parameter once.
    """
    if factory is not None:
        optimizers, ratios = own_optimizers.build(model, factory, fused=fused)
    elif settings.config.name == "task":
        raise InputError(
            "optimizer.name is 'task', but the task has no optimizer=…; define one, or use adamw, adam or sgd."
        )
    else:
        optimizers, ratios = [_build_builtin(trainable(model), settings.config, device, steps_left_out)], [1.0]
    grouped = GroupedOptimizer(optimizers, ratios)
    _adapt_to_batch_size(grouped.groups, settings)
    return grouped


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of the model that are not frozen; shared ones once."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _build_builtin(
    parameters: list[nn.Parameter], config: OptimizerConfig, device: torch.device, steps_left_out: bool
) -> torch.optim.Optimizer:
    """One group with the same decay for all parameters, as in `torch.optim.AdamW(model.parameters())`.

    Fused steps (one pass over memory) are used on CUDA and CPU. On a CPU, one AdamW step of a decoder of 0.14M
    parameters took 0.14 ms fused, 0.44 ms with `foreach` and 0.54 ms in a loop (torch 2.13, one thread); a
    forward and backward pass over 4 sequences took 5 ms. Fused steps require floating-point parameters on the device
    itself, which is all this function gets.
    """
    fused = device.type in ("cpu", "cuda") and all(parameter.is_floating_point() for parameter in parameters)
    if config.name == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=1.0,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=fused and not steps_left_out,
        )
    adam = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
    return adam(
        parameters,
        lr=1.0,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=fused,
    )


def _adapt_to_batch_size(groups: Sequence[dict[str, Any]], settings: OptimizerSettings) -> None:
    """Apply the across-batch rule to the groups: beta2, epsilon, and weight decay if the rule includes it."""
    rule, ratio = settings.config.across_batch, settings.batch_ratio
    for group in groups:
        if "weight_decay" in group:
            group["weight_decay"] = float(group["weight_decay"]) / settings.rate_ratio
        if rule is AcrossBatch.FIXED:
            continue
        if "betas" in group:
            beta1, beta2, *rest = group["betas"]
            group["betas"] = (beta1, beta2_at(float(beta2), ratio), *rest)
            if "eps" in group:
                group["eps"] = epsilon_at(float(group["eps"]), ratio)
        if rule is AcrossBatch.HALF_LIFE_AND_DECAY and "weight_decay" in group:
            group["weight_decay"] = weight_decay_at(float(group["weight_decay"]), ratio)
