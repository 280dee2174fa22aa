"""Loss scaling for fp16: gradients below 6e-8 would round to zero, so the loss is multiplied before the backward pass.

The scale is torch's own (torch.amp.GradScaler, by the rules of Micikevicius et al. 2018, arXiv:1710.03740): halved when
a gradient overflows, whose step is then left out, and doubled after 2,000 steps without. With the other precisions all
of this does nothing. Fused optimizers look at the overflow on the device; others wait for it once per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from batchlab.core.protocols import AddedNorms
from batchlab.torch_.optimizers import GroupedOptimizer


class LossScaling:
    """Scales losses and unscales gradients where `enabled`."""

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        self.enabled = enabled
        self._device = device
        self._scaler = torch.amp.GradScaler(device.type, enabled=enabled)

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        scaled: Tensor = self._scaler.scale(loss)
        return scaled

    def unscale(self, optimizer: GroupedOptimizer) -> None:
        """Divide the gradients by the scale. Call once per step, before anything reads them."""
        if self.enabled:
            for each in optimizer.with_gradients():
                self._scaler.unscale_(each)

    def step(self, optimizer: GroupedOptimizer) -> None:
        """Step every optimizer; where a gradient of its own overflowed, an optimizer keeps its parameters."""
        if not self.enabled:
            optimizer.step()
            return
        stepped = optimizer.with_gradients()
        for each in stepped:
            self._scaler.step(each)
        if stepped:
            self._scaler.update()

    def unscaled(self, norms: AddedNorms) -> AddedNorms:
        """Norms of scaled gradients as those of the gradients themselves."""
        if not self.enabled:
            return norms
        once = 1.0 / self.scale(torch.ones((), device=self._device))  # exact: scales are powers of two
        twice = once * once
        inner, signs, samples = norms.norm_layers, norms.signs, norms.norm_layer_samples
        return AddedNorms(
            _times(norms.squared, twice),
            _times([norms.squared_sum], twice)[0],
            inner and (_times(inner[0], twice), _times([inner[1]], twice)[0]),
            signs and (*_times(signs, once),),  # type: ignore[arg-type]
            samples and (*_times(samples, twice),),  # type: ignore[arg-type]
        )

    def state(self) -> dict[str, Any]:
        """The scale and the steps since it last changed; empty where there is none."""
        return self._scaler.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        if self.enabled:
            self._scaler.load_state_dict(state)


def _times(values: Sequence[Any], factor: Tensor) -> list[Tensor]:
    return [value * factor for value in values]
