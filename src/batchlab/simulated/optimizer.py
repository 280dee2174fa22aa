"""SGD, Adam and AdamW for one parameter vector, with the same arithmetic as torch.optim."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchlab.core.experiment import AcrossBatch, OptimizerConfig
from batchlab.core.spec import OptimizerSettings
from batchlab.scaling import beta2_at, epsilon_at, weight_decay_of
from batchlab.simulated.problem import Vector


def is_plain(config: OptimizerConfig) -> bool:
    """Whether this is plain SGD, whose expected loss is known: no moments, weight decay or clipping."""
    moves = config.name == "task" or (config.name == "sgd" and config.momentum == 0 and config.weight_decay == 0)
    return moves and config.grad_clip is None


class Optimizer:
    """Updates parameters in place. The name "task" means plain SGD, the only kind with a known expected loss."""

    def __init__(self, settings: OptimizerSettings, size: int) -> None:
        config, ratio = settings.config, settings.batch_ratio
        rule = config.across_batch
        self.adam = config.is_adam
        self.decoupled = config.name == "adamw"
        plain = config.name == "task"
        self.momentum = 0.0 if plain else config.momentum
        self.beta1 = config.beta1
        self.beta2 = config.beta2 if rule is AcrossBatch.FIXED else beta2_at(config.beta2, ratio)
        self.epsilon = config.epsilon if rule is AcrossBatch.FIXED else epsilon_at(config.epsilon, ratio)
        self.weight_decay = 0.0 if plain else weight_decay_of(config, ratio, settings.rate_ratio)
        self.steps = 0
        self.first = np.zeros(size)  # momentum buffer or first moment
        self.second = np.zeros(size)

    def step(self, theta: Vector, gradient: Vector, learning_rate: float) -> None:
        """Update `theta` in place at this learning rate."""
        self.steps += 1
        if self.decoupled:
            theta *= 1 - learning_rate * self.weight_decay
        else:
            gradient = gradient + self.weight_decay * theta
        if self.adam:
            self.first = self.beta1 * self.first + (1 - self.beta1) * gradient
            self.second = self.beta2 * self.second + (1 - self.beta2) * gradient * gradient
            mean = self.first / (1 - self.beta1**self.steps)
            spread = np.sqrt(self.second / (1 - self.beta2**self.steps))
            theta -= learning_rate * mean / (spread + self.epsilon)
            return
        direction = gradient
        if self.momentum:
            self.first = self.momentum * self.first + direction
            direction = self.first
        theta -= learning_rate * direction

    def state(self) -> dict[str, Any]:
        """Step count and moments, JSON-serialisable."""
        return {"steps": self.steps, "first": self.first.tolist(), "second": self.second.tolist()}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.steps = state["steps"]
        self.first, self.second = np.array(state["first"]), np.array(state["second"])
