"""Inspection of an MlxTrainable for `batchlab check`: host copies of its arrays, and the layer that mixes samples."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from batchlab.core.nested import map_leaves, select
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.protocols import Batch
from batchlab.mlx_ import random_state
from batchlab.mlx_.modules import Call, observed_calls
from batchlab.mlx_.trainable import MlxTrainable, on_device

DROPOUT = (nn.Dropout, nn.Dropout2d, nn.Dropout3d)
TOLERANCE = 1e-4
"""Of float32, relative: matrix products may sum in another order at another batch size."""


@dataclass(slots=True)
class _Call:
    """Inputs and outputs of one module call, on the host."""

    name: str
    inputs: list[npt.NDArray[Any]]
    outputs: list[npt.NDArray[Any]]


class InspectableMlxTrainable(MlxTrainable):
    """An MlxTrainable that also implements `protocols.Inspectable`."""

    _steady = False

    def init(self, seed: int) -> None:
        """As in MlxTrainable; randomness is on again."""
        self._steady = False
        super().init(seed)

    def accumulate(self, batch: Batch, weight: float) -> None:
        """As in MlxTrainable; after `without_randomness`, with the same random numbers at every call."""
        with random_state.fixed() if self._steady else nullcontext():
            super().accumulate(batch, weight)

    def parameter_count(self) -> int:
        """Number of trainable parameters."""
        return sum(value.size for _, value in tree_flatten(self.model.trainable_parameters()))

    def optimizer_family(self) -> Literal["adam", "sgd", "other"]:
        """The optimizer family, inferred from its settings."""
        return self.optimizer.family

    def optimizer_groups(self) -> list[tuple[OptimizerGroup, tuple[str, ...]]]:
        """One group per optimizer."""
        return self.optimizer.described(self.model)

    def parameters(self) -> Mapping[str, npt.NDArray[Any]]:
        """Host copies of all trainable parameters, by name."""
        return {name: host(value) for name, value in tree_flatten(self.model.trainable_parameters())}

    def gradients(self) -> Mapping[str, npt.NDArray[Any]]:
        """Host copies of the gradients accumulated since the last `apply`, by name."""
        return {} if self._gradient is None else {name: host(value) for name, value in tree_flatten(self._gradient)}

    def raw_loss(self, batch: Batch) -> float:
        """The value of the user's loss in evaluation mode, before any weighting (the sum, if it returns a pair)."""
        return float(self._total(self._evaluation_result(batch))[0].item())

    def loss_count(self, batch: Batch) -> float | None:
        """The count, if the loss returns (sum, count); None for a single number."""
        result = self._evaluation_result(batch)
        return float(result[1]) if isinstance(result, tuple | list) else None

    def without_randomness(self) -> None:
        """Until the next `init`, switch dropout layers off and draw the same random numbers in every pass."""
        self._steady = True
        for module in self.model.modules():
            if isinstance(module, DROPOUT):
                module._p_1 = 1.0  # probability to keep, which these layers have no public name for

    def mixing_layer(self, batch: Batch, half: int) -> str | None:
        """Name and class of the first layer whose output for samples 0 … half−1 depends on the others.

        The model runs in training mode on the whole batch and on its first half, without dropout. Returns the first
        module to finish whose inputs agree on the half but whose outputs do not; None if there is none.
        """
        self.without_randomness()
        whole, part = self._recorded(batch), self._recorded(select(batch, slice(half)))
        for one, other in zip(whole, part, strict=False):
            if one.name != other.name:
                return None  # control flow depends on the data, so the calls cannot be compared
            if _agree(one.inputs, other.inputs) and not _agree(one.outputs, other.outputs):
                return one.name
        return None

    def _recorded(self, batch: Batch) -> list[_Call]:
        """Inputs and outputs of all module calls, in the order in which they finished."""
        calls: list[_Call] = []
        held = self.model.parameters()

        def record(call: Call) -> None:
            label = f"{call.name or 'the model itself'} ({type(call.module).__name__})"
            calls.append(_Call(label, _arrays(call.inputs), _arrays([call.output])))

        with observed_calls(self.model, record), random_state.fixed():
            self._task.loss(self.model, *map_leaves(on_device, batch))
        self.model.update(held)
        return calls


def _arrays(values: Any) -> list[npt.NDArray[Any]]:
    return [host(value) for _, value in tree_flatten(values) if isinstance(value, mx.array)]


def host(value: mx.array) -> npt.NDArray[Any]:
    """A numpy copy; bfloat16, which numpy lacks, becomes float32."""
    return np.array(value.astype(mx.float32) if value.dtype in (mx.bfloat16, mx.float16) else value)


def _agree(whole: list[npt.NDArray[Any]], part: list[npt.NDArray[Any]]) -> bool:
    """Whether the first samples of `whole` equal `part` up to rounding."""
    return len(whole) == len(part) and all(_matches(one, other) for one, other in zip(whole, part, strict=True))


def _matches(whole: npt.NDArray[Any], part: npt.NDArray[Any]) -> bool:
    """Compare on the axis where the sizes differ, the batch axis. A scalar is a loss and not compared."""
    if whole.ndim == 0 or whole.ndim != part.ndim:
        return True
    whole = whole[tuple(slice(size) for size in part.shape)]
    if whole.shape != part.shape or not whole.size:
        return True
    return bool(np.abs(whole - part).max() <= TOLERANCE * np.abs(part).max())
