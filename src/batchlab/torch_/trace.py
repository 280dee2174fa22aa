"""What a training step needs in memory, found without running it: the person's own code over tensors without values.

Two whole optimizer steps and an evaluation run under torch's FakeTensorMode, where every operation computes shapes
only. Tensors are on "cpu" whatever the device is meant to be: fake CUDA tensors abort a process whose torch was built
without CUDA. So it is the CPU's operations that are followed, the CPU's rules of autocast among them.

What is not seen: buffers that kernels allocate inside themselves (oneDNN's and cuDNN's workspaces: 25 … 30 % of the
peak was missing for a convolutional network in bf16 or in evaluation), cuBLAS's workspace, the device's context, and
what torch.compile would fuse: the steps are traced as written.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_leaves

from batchlab.core.errors import InputError, NotMeasurable
from batchlab.core.protocols import Batch
from batchlab.core.record import TracePoint, TraceResult
from batchlab.core.spec import TraceSpec
from batchlab.core.task import Task
from batchlab.torch_ import random_state
from batchlab.torch_.cuda_allocator import peak_reserved_bytes
from batchlab.torch_.initialisation import ValuelessInitialisation, conversion_in_place
from batchlab.torch_.storage_log import StorageLog
from batchlab.torch_.trainable import TorchTrainable

PASSES = 2
"""Micro-batches of the second step, at most: from the second on, gradients are alive and nothing new happens. The first
step only makes the optimizer's state, and needs one."""

LEARNING_RATE = 1e-3


def trace(task: Task, spec: TraceSpec, sample: Batch, held_out: Batch) -> TraceResult:
    """Peaks at each of the spec's micro-batch sizes, for batches made of copies of one training (held-out) sample.

    A model that needs values to know its way is `untraceable`, and why. InputError for what is wrong with the request.
    """
    with _process_kept():
        try:
            points = tuple(_trace_size(task, spec, size, sample, held_out) for size in sorted(spec.micro_batch_sizes))
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the person's code on another kind of tensors
            return TraceResult(untraceable=str(_untraceable(error)))
    return TraceResult(points=points)


def _trace_size(task: Task, spec: TraceSpec, size: int, sample: Batch, held_out: Batch) -> TracePoint:
    batch, evaluated = _repeated(sample, size), _repeated(held_out, spec.evaluation_batch_size or size)
    log = StorageLog()
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, log:
        trainable = TracedTrainable(task, spec, log)
        with ValuelessInitialisation(fake), conversion_in_place():
            trainable.init(0)
        log.claim(trainable.constants(), "parameter")
        log.begin()
        with _uncompiled():
            for passes in (1, min(spec.grad_accum_steps, PASSES)):
                for _ in range(passes):
                    log.phase = "forward"
                    trainable.accumulate(batch, 1.0)
                    log.claim(trainable.accumulated(), "gradient")
                log.phase = "optimizer"
                trainable.apply(LEARNING_RATE)
                log.claim(trainable.optimizer_state(), "optimizer")
            log.phase = "evaluation"
            trainable.evaluate(evaluated)
        changes = list(log.changes)
    return TracePoint(
        micro_batch_size=size,
        phases=log.peaks(),
        reserved_bytes=_reserved([(change.storage, change.bytes) for change in changes], spec.device.memory_limit),
    )


def _uncompiled() -> AbstractContextManager[Any]:
    """Parts that the person compiles run as they were written, where the compiler is loaded at all."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _reserved(changes: list[tuple[int, int]], limit: int | None) -> int | None:
    """Within the limit where it fits, giving back free segments at need; else what an unlimited card would hold."""
    within = peak_reserved_bytes(changes, limit)
    return peak_reserved_bytes(changes) if within is None else within


class TracedTrainable(TorchTrainable):
    """A TorchTrainable's own steps over tensors without values; the batch's arrays give shapes and types only."""

    def __init__(self, task: Task, spec: TraceSpec, log: StorageLog) -> None:
        on_cpu = spec.device.model_copy(update={"name": "cpu", "compile": False})
        super().__init__(replace(task, model=lambda: _without_values(task.model())), on_cpu, spec.optimizer)
        self._log = log
        self._target = torch.device(spec.device.name)

    def init(self, seed: int) -> None:
        """Parameters without values; no random state is touched."""
        self._build()
        self.optimizer.follow_defaults_of(self._target)

    def constants(self) -> Iterator[Tensor]:
        """Parameters and buffers."""
        yield from self.model.parameters()
        yield from self.model.buffers()

    def accumulated(self) -> list[Tensor]:
        """The gradients there are."""
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]

    def optimizer_state(self) -> list[Tensor]:
        """Every tensor the optimizer keeps."""
        return [leaf for leaf in tree_leaves(list(self.optimizer.torch.state.values())) if isinstance(leaf, Tensor)]

    def count(self, batch: Batch) -> float:
        """Any number: it only scales the loss."""
        return 1.0

    def evaluate(self, batch: Batch) -> tuple[Tensor, float]:
        """As TorchTrainable does, without reading how many targets there were."""
        loss, factor = self._total(self._evaluation_result(batch), batch)
        return loss.detach() * factor, 1.0

    def _fixed_randomness(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _tensor(self, array: Any) -> Tensor:
        tensor = torch.empty(array.shape, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype)
        if not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool):
            tensor = torch.empty(array.shape, dtype=torch.int64)
        self._log.claim([tensor], "activation")
        return tensor


def _without_values(model: Any) -> Any:
    """A model whose weights were made elsewhere (read from a file, a global) is copied; the copy has none."""
    if not isinstance(model, nn.Module):
        return model
    made_here = all(isinstance(value, FakeTensor) for value in (*model.parameters(), *model.buffers()))
    return model if made_here else copy.deepcopy(model)


def _repeated(sample: Batch, size: int) -> Batch:
    """`size` copies of the first sample, without memory for them."""
    return tuple(np.broadcast_to(array[:1], (size, *array.shape[1:])) for array in sample)


@contextmanager
def _process_kept() -> Iterator[None]:
    """Random state, default type and gradient mode afterwards as before, whatever the person's code set."""
    cpu = torch.device("cpu")
    before, dtype, gradients = random_state.capture(cpu), torch.get_default_dtype(), torch.is_grad_enabled()
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    try:
        with warnings.catch_warnings():
            # torch's own deepcopy looks for a tensor's address, and its own fake tensors warn of that.
            warnings.filterwarnings("ignore", "Accessing the data pointer")
            yield
    finally:
        random_state.restore(before, cpu)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)


def _untraceable(error: BaseException) -> NotMeasurable:
    text = " ".join(str(error).split())
    if isinstance(error, DataDependentOutputException):
        return NotMeasurable(f"The model or loss branches on the value of a tensor ({text}).")
    if isinstance(error, DynamicOutputShapeException):
        return NotMeasurable(f"The size of a tensor depends on the values of another ({text}).")
    if isinstance(error, UnsupportedOperatorException | UnsupportedFakeTensorException):
        return NotMeasurable(f"An operation does not declare the shape of its result ({text}).")
    shortened = text if len(text) <= 200 else f"{text[:200]}…"
    return NotMeasurable(f"On tensors without values the task raised {type(error).__name__}: {shortened}")
