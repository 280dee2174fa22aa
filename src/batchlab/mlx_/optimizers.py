"""The optimizer of a run: the task's own or a built-in one, which follows the learning rate and the batch size.

An MLX optimizer has one learning rate, so it is one parameter group; a `MultiOptimizer` has one for each of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map, tree_map_with_path

from batchlab.core.errors import InputError
from batchlab.core.experiment import AcrossBatch, OptimizerConfig
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.spec import OptimizerSettings
from batchlab.core.task import OptimizerFactory, optimizer_argument
from batchlab.scaling import beta2_at, epsilon_at, weight_decay_at

REFERENCE_LEARNING_RATE, OTHER_LEARNING_RATE = 1.0, 0.5
"""What the task's `optimizer(params, lr)` is called with: the learning rate of a group is then its ratio to `lr`."""


class GroupedOptimizer:
    """An MLX optimizer whose parts keep the ratios of their learning rates."""

    def __init__(self, optimizer: optim.Optimizer, ratios: Sequence[float], coupled_decay: float = 0.0) -> None:
        """coupled_decay: added to the gradient as decay · parameter, which MLX's Adam has no setting for."""
        self.optimizer = optimizer
        self._ratios = tuple(ratios)
        self._coupled_decay = coupled_decay

    def init(self, model: nn.Module) -> None:
        """Create the state for the model's trainable parameters."""
        self.optimizer.init(model.trainable_parameters())

    def step(self, model: nn.Module, gradient: Any, learning_rate: float) -> None:
        """Update the model's parameters, each part of the optimizer at ratio · learning_rate."""
        for part, ratio in zip(parts(self.optimizer), self._ratios, strict=True):
            part.state["learning_rate"] = mx.array(ratio * learning_rate, mx.float32)
        if self._coupled_decay:
            decay = self._coupled_decay
            gradient = tree_map(lambda g, p: g + decay * p, gradient, model.trainable_parameters())
        model.update(self.optimizer.apply_gradients(gradient, model))

    def state(self) -> dict[str, mx.array]:
        """Moments and step counts of every part, by name."""
        return dict(tree_flatten(self.optimizer.state))

    def load(self, state: Mapping[str, mx.array]) -> None:
        """Restore what `state` returned. Raises KeyError where something is missing."""
        self.optimizer.state = tree_map_with_path(lambda name, _: state[name], self.optimizer.state)

    def described(self, model: nn.Module) -> list[tuple[OptimizerGroup, tuple[str, ...]]]:
        """Every part that has trainable parameters, with their names."""
        named = dict(tree_flatten(model.trainable_parameters()))
        found = []
        for index, (part, ratio) in enumerate(zip(parts(self.optimizer), self._ratios, strict=True)):
            names = tuple(name for name, value in named.items() if _part_of(self.optimizer, name, value) == index)
            if names:
                decay = getattr(part, "weight_decay", None)
                betas = getattr(part, "betas", (None, None))
                group = OptimizerGroup(
                    optimizer=type(part).__name__,
                    learning_rate_ratio=ratio,
                    weight_decay=self._coupled_decay or (None if decay is None else float(decay)),
                    beta1=betas[0],
                    beta2=betas[1],
                    epsilon=float(part.eps) if betas[0] is not None and hasattr(part, "eps") else None,
                    parameter_count=sum(named[name].size for name in names),
                )
                found.append((group, names))
        return found

    @property
    def family(self) -> Literal["adam", "sgd", "other"]:
        """'adam' if all parts have betas, 'sgd' if all are SGD, else 'other'."""
        found = parts(self.optimizer)
        if all(hasattr(part, "betas") for part in found):
            return "adam"
        return "sgd" if all(isinstance(part, optim.SGD) for part in found) else "other"


def build(model: nn.Module, factory: OptimizerFactory | None, settings: OptimizerSettings) -> GroupedOptimizer:
    """The task's optimizer from `factory`, or AdamW, Adam or SGD as configured, with settings for this batch size.

    Raises InputError if it does not follow the learning rate it is given.
    """
    config = settings.config
    coupled_decay = 0.0
    if factory is not None:
        optimizer = _call(model, factory, REFERENCE_LEARNING_RATE)
        ratios = _ratios(optimizer, _call(model, factory, OTHER_LEARNING_RATE))
    elif config.name == "task":
        raise InputError(
            "optimizer.name is 'task', but the task has no optimizer=…; define one, or use adamw, adam or sgd."
        )
    else:
        optimizer, ratios = _built_in(config), [1.0]
        coupled_decay = config.weight_decay / settings.rate_ratio if config.name == "adam" else 0.0
        if config.across_batch is AcrossBatch.HALF_LIFE_AND_DECAY:
            coupled_decay = weight_decay_at(coupled_decay, settings.batch_ratio)
    for part in parts(optimizer):
        _adapt_to_batch_size(part, settings)
    grouped = GroupedOptimizer(optimizer, ratios, coupled_decay)
    grouped.init(model)
    return grouped


def parts(optimizer: optim.Optimizer) -> list[Any]:
    """The optimizers of a MultiOptimizer, also of nested ones; else the optimizer alone."""
    if not isinstance(optimizer, optim.MultiOptimizer):
        return [optimizer]
    return [part for one in optimizer.optimizers for part in parts(one)]


def _part_of(optimizer: optim.Optimizer, name: str, value: mx.array) -> int:
    """Position among `parts` of the one that updates a parameter."""
    if not isinstance(optimizer, optim.MultiOptimizer):
        return 0
    before = 0
    for one, takes in zip(optimizer.optimizers, optimizer.filters, strict=True):
        if takes(name, value):
            return before + _part_of(one, name, value)
        before += len(parts(one))
    raise AssertionError(name)


def _built_in(config: OptimizerConfig) -> optim.Optimizer:
    """With the corrected moments that torch and the papers have, and MLX only where it is asked for them."""
    if config.name == "sgd":
        return optim.SGD(1.0, momentum=config.momentum, weight_decay=config.weight_decay)
    betas, epsilon = [config.beta1, config.beta2], config.epsilon
    if config.name == "adam":
        return optim.Adam(1.0, betas=betas, eps=epsilon, bias_correction=True)
    return optim.AdamW(1.0, betas=betas, eps=epsilon, weight_decay=config.weight_decay, bias_correction=True)


def _call(model: nn.Module, factory: OptimizerFactory, learning_rate: float) -> optim.Optimizer:
    given = model if optimizer_argument(factory) == "model" else model.trainable_parameters()
    try:
        made = factory(given, learning_rate)
    except TypeError as error:
        raise InputError(
            f"optimizer=… failed on the parameters of an MLX model ({error}); return an optimizer of mlx.optimizers, "
            "e.g. optimizer=lambda params, lr: mlx.optimizers.AdamW(learning_rate=lr)."
        ) from error
    if not isinstance(made, optim.Optimizer):
        raise InputError(
            f"optimizer=… returned {type(made).__module__}.{type(made).__name__} for an MLX model; return an "
            "mlx.optimizers.Optimizer, or a MultiOptimizer of several, built on lr."
        )
    return made


def _ratios(optimizer: optim.Optimizer, other: optim.Optimizer) -> list[float]:
    """Learning rate of every part ÷ the given one. `other` was built at half of it."""
    found, halves = parts(optimizer), parts(other)
    if len(found) != len(halves):
        raise InputError(
            "optimizer=… returned other optimizers at another learning rate; build the same ones at every lr."
        )
    ratios = []
    for part, half in zip(found, halves, strict=True):
        name = type(part).__name__
        if part._schedulers:
            raise InputError(f"optimizer=…: {name} has a schedule of its own; pass learning_rate=lr.")
        ratio = float(part.learning_rate) / REFERENCE_LEARNING_RATE
        if not math.isclose(float(half.learning_rate), ratio * OTHER_LEARNING_RATE, rel_tol=1e-6):
            raise InputError(
                f"optimizer=…: {name} does not follow the learning rate it is given (it has "
                f"{float(half.learning_rate):g} at lr={OTHER_LEARNING_RATE:g} and {ratio:g} at "
                f"lr={REFERENCE_LEARNING_RATE:g}); pass learning_rate=lr, or a multiple of it."
            )
        ratios.append(ratio)
    return ratios


def _adapt_to_batch_size(part: Any, settings: OptimizerSettings) -> None:
    """Apply the across-batch rule: beta2, epsilon, and weight decay if the rule includes it."""
    rule, ratio = settings.config.across_batch, settings.batch_ratio
    if hasattr(part, "weight_decay"):
        part.weight_decay = float(part.weight_decay) / settings.rate_ratio
    if rule is AcrossBatch.FIXED:
        return
    if hasattr(part, "betas"):
        beta1, beta2 = part.betas
        part.betas = [beta1, beta2_at(float(beta2), ratio)]
        if hasattr(part, "eps"):
            part.eps = epsilon_at(float(part.eps), ratio)
    if rule is AcrossBatch.HALF_LIFE_AND_DECAY and hasattr(part, "weight_decay"):
        part.weight_decay = weight_decay_at(part.weight_decay, ratio)
