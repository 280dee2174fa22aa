"""What a person's own training loop shows of its model: gradients of each backward pass, memory, time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn

from batchlab.core.record import NoGradientSamples
from batchlab.torch_ import memory
from batchlab.torch_.gradient_norms import GradientNorms, PassNorms
from batchlab.torch_.norm_layer_samples import NormLayerSamples


class Scaler(Protocol):
    """As torch.amp.GradScaler: the loss was multiplied by `get_scale()` before backward."""

    def get_scale(self) -> float: ...


class ObservedModel:
    """The torch side of `batchlab.observe`. Values come to the host in `numbers`, once per sampled step."""

    def __init__(self, model: Any, parameters: Any, scaler: Scaler | None) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"observe() takes a torch.nn.Module, not {type(model).__name__}.")
        self._norms = GradientNorms(model, parameters)
        self._model, self._samples = model, NormLayerSamples(model)
        self._scaler = scaler
        self._passes: list[PassNorms | None] = []
        self._scale = 1.0
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        memory.restart_peak(self.device)

    @property
    def why_not(self) -> NoGradientSamples | None:
        """Why gradients cannot be measured; None while they can."""
        return self._norms.unmeasurable

    @contextmanager
    def backward_pass(self, samples: int | None) -> Iterator[None]:
        """Around one backward pass of a sampled step; norm layers tell apart the `samples` in it, where given."""
        if not self._passes:
            self._scale = float(self._scaler.get_scale()) if self._scaler is not None else 1.0
            self._samples = NormLayerSamples(self._model)
        self._norms.begin_pass()
        self._samples.begin_pass(samples or 0)
        with self._norms.watching(), self._samples.watching() if samples is not None else nullcontext():
            yield
        self._passes.append(self._norms.end_pass())
        if samples is not None:
            self._samples.end_pass([1 / samples] * samples)

    def numbers(self) -> tuple[list[float], list[float]] | None:
        """(|v|², |u + v|² − |u|²) of each pass since the last call, without the scaler's factor; None where a pass gave
        no gradient. Waits for the device."""
        passes, self._passes = self._passes, []
        reached = [one for one in passes if one is not None]
        if len(reached) < len(passes) or not reached:
            return None
        factor = self._scale**2
        return [float(p.squared) / factor for p in reached], [float(p.growth) / factor for p in reached]

    def sample_numbers(self) -> tuple[list[float], float] | None:
        """Over norm layers, of the passes since the last call: n·Σ_j |v_j|² of each pass of n samples, which added v_j,
        and |Σ_j v_j|² of them all, without the scaler's factor. Waits for the device."""
        sums, self._samples = self._samples.sums(), NormLayerSamples(nn.Module())
        if sums is None:
            return None
        factor = self._scale**2
        return [float(within) / factor for within in sums[0]], float(sums[1]) / factor

    def peak_bytes(self) -> int | None:
        """Most bytes of live tensors since the model was first observed; on a CPU, most resident memory of the process
        above that moment."""
        return memory.read(self.device).peak_in_use_bytes

    def now(self) -> float:
        """Seconds, once the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
