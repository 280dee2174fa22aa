"""Measurements of an MLX model in the user's own training loop: gradients of each backward pass, memory, time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

from batchlab.core.errors import InputError
from batchlab.core.protocols import Watched
from batchlab.core.record import NoGradientSamples
from batchlab.mlx_ import memory
from batchlab.mlx_.gradient_norms import NormSums, norm_layer_names
from batchlab.mlx_.uncomputed import UncomputedSteps


class ObservedModel(Watched):
    """The MLX part of `batchlab.observe`. Values are copied to the host in `numbers`, once per sampled step."""

    def __init__(self, model: nn.Module, parameters: Literal["all", "norm_layers"]) -> None:
        self._norm_layers, self._parameters = norm_layer_names(model), parameters
        self._sums = NormSums(self._norm_layers, parameters)
        self._total: Any = None
        self._uncomputed = UncomputedSteps(model)
        memory.restart_peak()

    @property
    def why_not(self) -> NoGradientSamples | None:
        """Why gradients cannot be measured; None if they can."""
        lacking = self._parameters == "norm_layers" and not self._norm_layers
        return NoGradientSamples.NO_NORM_LAYERS if lacking else None

    @contextmanager
    def backward_pass(self, samples: int | None) -> Iterator[Callable[[Any], None]]:
        """Measure one backward pass of a sampled step. Raises InputError where its gradient was not handed over."""
        given: list[Any] = []
        yield given.append
        if len(given) != 1:
            raise InputError(
                f"micro_batch() was handed {len(given)} gradients of an MLX model; hand over one, multiplied by its "
                "share of the step: with obs.micro_batch(tokens=…) as measure: … measure(gradient)."
            )
        self._sums.add(self._total, given[0])
        self._total = given[0] if self._total is None else tree_map(mx.add, self._total, given[0])

    def numbers(self) -> tuple[list[float], list[float]] | None:
        """(|v|², |u + v|² − |u|²) of each pass since the last call; None if there was none. Waits for the device."""
        sums, self._sums, self._total = self._sums, NormSums(self._norm_layers, self._parameters), None
        if not sums.squared:
            return None
        return [float(one.item()) for one in sums.squared], [float(one.item()) for one in sums.growth]

    def uncomputed_steps(self) -> int:
        """`uncomputed.ENOUGH` where the loop computed no parameter for so many steps in a row, else 0."""
        self._uncomputed.count()
        return self._uncomputed.found

    def of_all_processes(self, own: Sequence[float]) -> tuple[list[list[float]], float] | None:
        """None: this process trains alone."""
        return None

    def sample_numbers(self) -> tuple[list[float], float] | None:
        """None: MLX returns gradients of whole micro-batches."""
        return None

    def peak_bytes(self) -> int | None:
        """Peak bytes of live arrays since the model was first observed."""
        return memory.read().peak_in_use_bytes

    def now(self) -> float:
        """Time in seconds, after waiting for what has been sent to the device. Arrays that nobody evaluated are not."""
        mx.synchronize()
        return time.perf_counter()
