"""Inspection of a TorchTrainable for `batchlab check`: host copies of its tensors, and the layer that mixes samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from batchlab.core.nested import select
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.protocols import Batch
from batchlab.torch_ import random_state
from batchlab.torch_.constant_noise import ConstantNoise
from batchlab.torch_.trainable import TorchTrainable

RELATIVE_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Matrix products may sum in another order at another batch size. Types narrower than float32 get 2e-2."""


@dataclass(slots=True)
class _Call:
    """Inputs and outputs of one module call, on the host."""

    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]


class InspectableTorchTrainable(TorchTrainable):
    """A TorchTrainable that also implements `protocols.Inspectable`."""

    _steady = False

    def init(self, seed: int) -> None:
        """As in TorchTrainable; randomness is on again."""
        self._steady = False
        super().init(seed)

    def accumulate(self, batch: Batch, weight: float) -> None:
        """As in TorchTrainable; after `without_randomness`, with the same noise for every sample and every call."""
        with self._noise():
            super().accumulate(batch, weight)

    def evaluate_draw(self, batch: Batch, draw: int) -> tuple[Tensor, float]:
        """As in TorchTrainable; after `without_randomness`, with the noise of `raw_loss`, to be compared with it."""
        with self._noise():
            return super().evaluate_draw(batch, draw)

    @contextmanager
    def _noise(self) -> Iterator[None]:
        if not self._steady:
            yield
            return
        with random_state.fixed(self.device), ConstantNoise():  # type: ignore[no-untyped-call]
            yield

    def parameter_count(self) -> int:
        """Number of trainable parameters; shared ones count once."""
        return sum(parameter.numel() for parameter in self._parameters)

    def optimizer_family(self) -> Literal["adam", "sgd", "other"]:
        """The optimizer family, inferred from the settings of its parameter groups."""
        return self.optimizer.family

    def optimizer_groups(self) -> list[tuple[OptimizerGroup, tuple[str, ...]]]:
        """The parameter groups of all optimizers."""
        return self.optimizer.described({p: name for name, p in self.model.named_parameters() if p.requires_grad})

    def parameters(self) -> Mapping[str, npt.NDArray[Any]]:
        """Host copies of all trainable parameters, by name."""
        return {name: _host(value) for name, value in self.model.named_parameters() if value.requires_grad}

    def gradients(self) -> Mapping[str, npt.NDArray[Any]]:
        """Host copies of the gradients accumulated since the last `apply`, by name; missing ones are omitted."""
        return {name: _host(value.grad) for name, value in self.model.named_parameters() if value.grad is not None}

    def raw_loss(self, batch: Batch) -> float:
        """The value of the user's loss in evaluation mode, before any weighting (the sum, if it returns a pair)."""
        with self._noise():
            result = self._evaluation_result(batch)
        return float(result[0] if isinstance(result, tuple | list) else result)

    def loss_count(self, batch: Batch) -> float | None:
        """The count, if the loss returns (sum, count); None for a single number."""
        result = self._evaluation_result(batch)
        return float(result[1]) if isinstance(result, tuple | list) else None

    def without_randomness(self) -> None:
        """Until the next `init`, switch dropout modules off and give every sample the same noise (ConstantNoise)."""
        self._steady = True
        for module in self.model.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.p = 0.0
            elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
                module.dropout = 0.0

    def mixing_layer(self, batch: Batch, half: int) -> str | None:
        """Qualified name and class of the first layer whose output for samples 0 … half−1 depends on the others.

        The model runs in training mode on the whole batch and on its first half, with dropout off as in
        `without_randomness`. Returns the first module to finish whose inputs agree on the half but whose outputs do
        not; submodules finish first, so it is the innermost one. None if there is no such module (the loss may still
        mix samples). Running statistics and the random state are restored.
        """
        self.without_randomness()
        whole = self._recorded(batch)
        part = self._recorded(select(batch, slice(half)))
        for one, other in zip(whole, part, strict=False):
            if one.name != other.name:
                return None  # control flow depends on the data, so the calls cannot be compared
            if _agree(one.inputs, other.inputs) and not _agree(one.outputs, other.outputs):
                return one.name
        return None

    def _recorded(self, batch: Batch) -> list[_Call]:
        """Inputs and outputs of all module calls, in the order in which they finished."""
        calls: list[_Call] = []

        def record(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            inputs = _tensors((args, kwargs))
            calls.append(_Call(f"{names[module]} ({type(module).__name__})", inputs, _tensors(output)))

        names = {module: name or "the model itself" for name, module in self.model.named_modules()}
        hooks = [module.register_forward_hook(record, with_kwargs=True) for module in names]
        buffers = {name: value.clone() for name, value in self.model.named_buffers()}
        try:
            with torch.no_grad(), self._uncompiled(), self._noise():
                self._forward(batch)
        finally:
            for hook in hooks:
                hook.remove()
            for name, value in self.model.named_buffers():
                value.copy_(buffers[name])
        return calls


def _host(value: Tensor) -> npt.NDArray[Any]:
    """A numpy copy; types that numpy lacks, such as bfloat16, become float32."""
    value = (value.to_dense() if value.is_sparse else value).detach().cpu()
    if value.dtype in (torch.bfloat16, torch.float16):
        value = value.float()
    array: npt.NDArray[Any] = value.clone().numpy()
    return array


def _tensors(values: Any) -> list[Tensor]:
    return [leaf.detach().cpu().clone() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _agree(whole: list[Tensor], part: list[Tensor]) -> bool:
    """Whether the first samples of `whole` equal `part` up to rounding."""
    return len(whole) == len(part) and all(_matches(one, other) for one, other in zip(whole, part, strict=True))


def _matches(whole: Tensor, part: Tensor) -> bool:
    """Compare on the axis where the sizes differ, the batch axis. A scalar is a loss and not compared."""
    if whole.ndim == 0 or whole.ndim != part.ndim:
        return True
    for axis, size in enumerate(part.shape):
        whole = whole.narrow(axis, 0, min(size, whole.shape[axis]))
    if whole.shape != part.shape or not whole.numel():
        return True
    if not whole.is_floating_point():
        return bool((whole == part).all())
    scale = float(part.abs().max())
    tolerance = RELATIVE_TOLERANCE.get(part.dtype, 2e-2)
    return float((whole - part).abs().max()) <= tolerance * scale
