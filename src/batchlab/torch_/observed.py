"""Measurements of a model in the user's own training loop: gradients of each backward pass, memory, time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from batchlab.core.protocols import Watched
from batchlab.core.record import NoGradientSamples
from batchlab.torch_ import memory
from batchlab.torch_.gradient_norms import GradientNorms, PassNorms
from batchlab.torch_.norm_layer_samples import NormLayerSamples


def _ignore(gradient: Any) -> None:
    pass


def _is_sharded(model: nn.Module) -> bool:
    """By fully_shard, whose parameters receive no gradient before it is summed over the processes, or by FSDP's first
    version. Asked at every sampled step, because a model may be sharded after `observe`, and by the names of the
    classes, whose modules take long to import."""
    parts = (*model.modules(), *model.parameters())
    return any(type(part).__name__ in ("FullyShardedDataParallel", "DTensor") for part in parts)


class Scaler(Protocol):
    """Like torch.amp.GradScaler: the loss is multiplied by `get_scale()` before backward."""

    def get_scale(self) -> float:
        """The current loss scale."""


class ObservedModel(Watched):
    """The torch part of `batchlab.observe`. Values are copied to the host in `numbers`, once per sampled step."""

    def __init__(self, model: nn.Module, parameters: Any, scaler: Scaler | None) -> None:
        self._norms = GradientNorms(model, parameters)
        self._model, self._samples = model, NormLayerSamples(model)
        self._scaler = scaler
        self._passes: list[PassNorms | None] = []
        self._scale = 1.0
        self._shared = model if isinstance(model, DistributedDataParallel) else None
        self._mean: Tensor | None = None  # |g|² after the processes have added up
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        memory.restart_peak(self.device)

    @property
    def why_not(self) -> NoGradientSamples | None:
        """Why gradients cannot be measured; None if they can."""
        return NoGradientSamples.SHARDED if _is_sharded(self._model) else self._norms.unmeasurable

    @contextmanager
    def backward_pass(self, samples: int | None) -> Iterator[Callable[[Any], None]]:
        """Measure one backward pass of a sampled step.

        If `samples` is given, norm layers also give per-sample gradients. Hooks see the gradients, so none is taken.
        """
        if not self._passes:
            self._scale = float(self._scaler.get_scale()) if self._scaler is not None else 1.0
            self._samples = NormLayerSamples(self._model)
        self._norms.begin_pass()
        self._samples.begin_pass(samples or 0)
        with self._norms.watching(), self._samples.watching() if samples is not None else nullcontext():
            yield _ignore
        self._passes.append(self._norms.end_pass())
        if self._shared is not None:
            self._mean = self._norms.accumulated_squared() if self._shared.require_backward_grad_sync else None
        if samples is not None:
            self._samples.end_pass([1 / samples] * samples)

    def numbers(self) -> tuple[list[float], list[float]] | None:
        """(|v|², |u + v|² − |u|²) of each pass since the last call, with the loss scale divided out.

        None if a pass gave no gradient. Waits for the device.
        """
        passes, self._passes = self._passes, []
        reached = [one for one in passes if one is not None]
        if len(reached) < len(passes) or not reached:
            return None
        factor = self._scale**2
        return [float(p.squared) / factor for p in reached], [float(p.growth) / factor for p in reached]

    def of_all_processes(self, own: Sequence[float]) -> tuple[list[list[float]], float] | None:
        """What every process of a DistributedDataParallel model gives, and |g|² of their mean gradient at this step.

        None for another model. Waits for all of them.
        """
        if self._shared is None:
            return None
        group = self._shared.process_group
        found: list[list[float]] = [[] for _ in range(dist.get_world_size(group))]
        dist.all_gather_object(found, list(own), group=group)
        mean, self._mean = self._mean, None
        return found, math.nan if mean is None else float(mean) / self._scale**2

    def sample_numbers(self) -> tuple[list[float], float] | None:
        """Per-sample sums over norm layers since the last call, with the loss scale divided out.

        Returns n·Σ_j |v_j|² for each pass of n samples with gradients v_j, and |Σ_j v_j|² over all passes. Waits for
        the device.
        """
        sums, self._samples = self._samples.sums(), NormLayerSamples(nn.Module())
        if sums is None:
            return None
        factor = self._scale**2
        return [float(within) / factor for within in sums[0]], float(sums[1]) / factor

    def peak_bytes(self) -> int | None:
        """Peak bytes of live tensors since the model was first observed.

        On a CPU, the peak resident memory of the process above its value at that time.
        """
        return memory.read(self.device).peak_in_use_bytes

    def now(self) -> float:
        """Time in seconds, after waiting for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
