"""The learning rate as a function of tokens, and its average over the tokens of one step.

Every batch size follows the same curve over tokens, except where a floor in steps makes warm-up or decay longer. A step
of B tokens covers the interval [t, t + B) and uses the mean of the curve over it. So runs of large and of small steps
have the same integral of the learning rate over tokens, and even a single warm-up step has a learning rate above zero.
"""

from __future__ import annotations

import math

from batchlab.core.experiment import ScheduleConfig


class Schedule:
    """Warm-up from zero, then cosine, constant, or constant with a linear decay at the end (WSD).

    `total` and all positions are tokens; so is `step`, the tokens of one step, which the floors need.
    Cosine: Loshchilov & Hutter 2017 (arXiv:1608.03983) without restarts.
    WSD: Hu et al. 2024 (arXiv:2404.06395), linear cooldown as in Hägele et al. 2024 (arXiv:2405.18392).
    """

    def __init__(self, config: ScheduleConfig, peak: float, total: float, step: float = 0.0) -> None:
        self.peak = peak
        self.total = total
        self.warmup = config.warmup_tokens(total, step)
        self.final = config.final_fraction
        self.kind = config.kind
        decay = max(config.decay_fraction * total, config.min_decay_steps * step)
        self.decay_start = total - decay if config.kind == "wsd" else self.warmup
        self.decay_start = max(self.decay_start, self.warmup)

    def at(self, token: float) -> float:
        """Learning rate at a position, which is clamped to [0, total]."""
        token = min(max(token, 0.0), self.total)
        if token < self.warmup:
            return self.peak * token / self.warmup
        if self.kind == "constant" or token <= self.decay_start or self.decay_start >= self.total:
            return self.peak
        progress = (token - self.decay_start) / (self.total - self.decay_start)
        shape = 0.5 * (1 + math.cos(math.pi * progress)) if self.kind == "cosine" else 1 - progress
        return self.peak * (self.final + (1 - self.final) * shape)

    def mean(self, start: float, stop: float) -> float:
        """Mean learning rate over the tokens [start, stop), exact: the curve's antiderivative at both ends."""
        return (self._integral(stop) - self._integral(start)) / (stop - start)

    def _integral(self, token: float) -> float:
        """∫₀ᵗ of the curve."""
        if self.warmup > 0 and token <= self.warmup:
            return self.peak * token * token / (2 * self.warmup)
        area = self.peak * self.warmup / 2
        flat_until = token if self.kind == "constant" else min(token, self.decay_start)
        area += self.peak * (flat_until - self.warmup)
        if self.kind == "constant" or token <= self.decay_start:
            return area
        span = self.total - self.decay_start
        progress = (token - self.decay_start) / span
        if self.kind == "cosine":
            shape = 0.5 * (progress + math.sin(math.pi * progress) / math.pi)
        else:
            shape = progress - progress * progress / 2
        return area + self.peak * span * (self.final * progress + (1 - self.final) * shape)
