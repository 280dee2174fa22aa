"""Predicts the memory of a training step without running it, by tracing the user's code with fake tensors.

Two optimizer steps and an evaluation run under torch's FakeTensorMode, where operations compute shapes only.
Tensors are on "cpu" whatever the target device, because fake CUDA tensors abort a process whose torch was built
without CUDA. The trace therefore follows CPU operations, with CUDA's rules of autocast and its kernels for attention
where the target is CUDA.

Not included: buffers that kernels allocate internally (workspaces of oneDNN and cuDNN; 25 … 30 % of the peak was
missing for a convolutional network in bf16 or in evaluation), the workspace of cuBLAS, the device context, and fusion
by torch.compile: the steps are traced as written.
"""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

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

from batchlab.core.errors import InputError, NotMeasurable
from batchlab.core.nested import map_leaves
from batchlab.core.protocols import Batch
from batchlab.core.record import ShardingUnit, TracePoint, TraceResult
from batchlab.core.spec import TraceSpec
from batchlab.core.task import Task
from batchlab.torch_ import random_state
from batchlab.torch_.cuda_allocator import CUBLAS_WORKSPACE, expandable_segments, peak_reserved_bytes
from batchlab.torch_.cuda_attention import cuda_attention, kernel_scratch
from batchlab.torch_.cuda_autocast import cuda_autocast_rules
from batchlab.torch_.cuda_dropout import cuda_dropout
from batchlab.torch_.device import torch_device
from batchlab.torch_.initialisation import FakeInitialisation, conversion_in_place
from batchlab.torch_.sharding_units import sharding_units
from batchlab.torch_.storage_log import StorageLog
from batchlab.torch_.trainable import TorchTrainable, on_device

PASSES = 2
"""Maximum number of micro-batches in the second step. From the second micro-batch on, gradients are alive and memory
does not change. The first step only creates the optimizer state and needs one micro-batch."""

LEARNING_RATE = 1e-3


def trace(task: Task, spec: TraceSpec, sample: Batch, held_out: Batch) -> TraceResult:
    """Peak memory at each micro-batch size of the spec, for batches of copies of one training (held-out) sample.

    If the model's control flow or shapes depend on tensor values, the result says why it is `untraceable`. If the steps
    draw from the random numbers of Python or numpy, which may decide what runs, it says that memory `varies`. Raises
    InputError if the task itself is invalid.
    """
    with _process_state_restored():
        try:
            traced = [_trace_size(task, spec, size, sample, held_out) for size in sorted(spec.micro_batch_sizes)]
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code on fake tensors may raise anything
            return TraceResult(untraceable=str(_untraceable(error)))
    return TraceResult(
        points=tuple(point for point, _, _ in traced),
        varies=any(varies for _, varies, _ in traced),
        units=traced[-1][2],
    )


def _trace_size(
    task: Task, spec: TraceSpec, size: int, sample: Batch, held_out: Batch
) -> tuple[TracePoint, bool, tuple[ShardingUnit, ...]]:
    batch, evaluated = _repeated(sample, size), _repeated(held_out, spec.evaluation_batch_size or size)
    log = StorageLog(scratch=kernel_scratch)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, log:
        trainable = FakeTrainable(task, spec, log)
        with FakeInitialisation(fake), conversion_in_place():
            trainable.init(0)
        log.claim(trainable.constants(), "parameter")
        log.begin()
        before = _host_random()
        with _uncompiled():
            _step(trainable, log, batch, passes=1)
            _step(trainable, log, batch, passes=min(spec.grad_accum_steps, PASSES))
            log.phase = "evaluation"
            trainable.evaluate(evaluated)
        varies = _host_random() != before
        changes = list(log.changes)
        units = sharding_units(trainable.model)
    point = TracePoint(
        micro_batch_size=size,
        phases=log.peaks(),
        reserved_bytes=_reserved([(change.storage, change.bytes) for change in changes], spec.device.memory_limit),
    )
    return point, varies, units


def trace_values(task: Task, spec: TraceSpec, batches: Iterable[Batch], held_out: Batch) -> TraceResult:
    """Peak memory at one micro-batch size by running steps on these batches: for what fake tensors cannot show.

    The steps run on the CPU, on tensors with values, and the same log counts their storages. The phases are those of
    the batch that needed most.
    """
    with _process_state_restored():
        try:
            return TraceResult(points=(_run_size(task, spec, batches, held_out),))
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
            return TraceResult(untraceable=str(_untraceable(error)))


def _run_size(task: Task, spec: TraceSpec, batches: Iterable[Batch], held_out: Batch) -> TracePoint:
    log, peaks = StorageLog(values=True), []
    passes = min(spec.grad_accum_steps, PASSES)
    with log:
        trainable = LoggedTrainable(task, spec)
        trainable.init(0)
        log.claim(trainable.constants(), "parameter")
        with _uncompiled():
            for number, batch in enumerate(batches):
                if number == 0:
                    _step(trainable, log, batch, passes=1)  # creates the optimizer state
                log.begin()
                _step(trainable, log, batch, passes)
                peaks.append(log.peaks())
            log.begin()
            log.phase = "evaluation"
            trainable.evaluate(held_out)
            evaluation = log.peaks()
    totals = tuple(max(phase.total_bytes for phase in peak) for peak in peaks)
    largest = peaks[totals.index(max(totals))]
    return TracePoint(
        micro_batch_size=spec.micro_batch_sizes[0],
        phases=(*largest, *(phase for phase in evaluation if phase.phase == "evaluation")),
        draw_bytes=totals,
    )


def _step(trainable: LoggedTrainable, log: StorageLog, batch: Batch, passes: int) -> None:
    """One optimizer step over `passes` micro-batches."""
    for _ in range(passes):
        log.phase = "forward"
        trainable.accumulate(batch, 1.0)
        log.claim(trainable.accumulated(), "gradient")
    log.phase = "optimizer"
    trainable.apply(LEARNING_RATE)
    log.claim(trainable.optimizer_state(), "optimizer")


def _host_random() -> tuple[Any, ...]:
    """The state of the random numbers of Python and numpy, which model code uses to decide what to run."""
    _, keys, position, *_ = cast("Any", np.random.get_state(legacy=True))
    return random.getstate(), position, keys.tobytes()


def _uncompiled() -> AbstractContextManager[Any]:
    """Run compiled parts of the user's code in eager mode. If the compiler was never imported, there are none."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _reserved(changes: list[tuple[int, int]], limit: int | None) -> int | None:
    """Peak reserved bytes within the limit, or without a limit if the changes do not fit within it; None where segments
    may grow.

    Above those of a process that has multiplied matrices: what its first segment leaves free is used.
    """
    if expandable_segments():
        return None
    within = peak_reserved_bytes(changes, limit, (CUBLAS_WORKSPACE,))
    return peak_reserved_bytes(changes, None, (CUBLAS_WORKSPACE,)) if within is None else within


class LoggedTrainable(TorchTrainable):
    """A TorchTrainable on the CPU whose tensors a StorageLog can claim; it does not change any random state."""

    def __init__(self, task: Task, spec: TraceSpec) -> None:
        super().__init__(task, spec.device.model_copy(update={"name": "cpu", "compile": "off"}), spec.optimizer)
        self._target = torch_device(spec.device.name)

    @property
    def _scales_loss(self) -> bool:
        """Never: whether a step is left out depends on values, and the scale takes no memory to speak of."""
        return False

    def init(self, seed: int) -> None:
        """Build the model and the optimizer."""
        self._build()
        self.optimizer.follow_defaults_of(self._target)

    def constants(self) -> Iterator[Tensor]:
        """Parameters and buffers."""
        yield from self.model.parameters()
        yield from self.model.buffers()

    def accumulated(self) -> list[Tensor]:
        """All existing gradients."""
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]

    def optimizer_state(self) -> list[Tensor]:
        """All tensors in the state of the optimizers."""
        return self.optimizer.state_tensors()

    def count(self, batch: Batch) -> float:
        """An arbitrary number, because it only scales the loss."""
        return 1.0

    def evaluate(self, batch: Batch) -> tuple[Tensor, float]:
        """As in TorchTrainable, without reading the number of targets."""
        with self._rules():
            loss, factor = self._total(self._evaluation_result(batch), batch)
        return loss.detach() * factor, 1.0

    def accumulate(self, batch: Batch, weight: float) -> None:
        """As on the target; checkpointed blocks run again in the backward pass."""
        with self._rules():
            super().accumulate(batch, weight)

    def _rules(self) -> AbstractContextManager[None]:
        """CUDA's rules of autocast where the step will run on CUDA."""
        return cuda_autocast_rules() if self._autocast is not None and self._target.type == "cuda" else nullcontext()


class FakeTrainable(LoggedTrainable):
    """A LoggedTrainable on fake tensors; only shapes and types of the batch are used."""

    def __init__(self, task: Task, spec: TraceSpec, log: StorageLog) -> None:
        super().__init__(replace(task, model=lambda: _as_fake(task.model())), spec)
        self._log = log

    @contextmanager
    def _rules(self) -> Iterator[None]:
        """Also CUDA's kernels for attention and dropout, which have no values to compute here."""
        with ExitStack() as rules:
            rules.enter_context(super()._rules())
            if self._target.type == "cuda":
                rules.enter_context(cuda_attention())
                rules.enter_context(cuda_dropout())
            yield

    def _fixed_randomness(self, draw: int) -> AbstractContextManager[None]:
        return nullcontext()

    def _tensor(self, array: Any) -> Tensor:
        given = torch.empty(array.shape, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype, device="meta")
        tensor = torch.empty(array.shape, dtype=on_device(given, self._target))
        self._log.claim([tensor], "activation")
        return tensor


def _as_fake(model: Any) -> Any:
    """A model with real weights (read from a file, or global) is deep-copied, which makes the copy fake."""
    if not isinstance(model, nn.Module):
        return model
    is_fake = all(isinstance(value, FakeTensor) for value in (*model.parameters(), *model.buffers()))
    return model if is_fake else copy.deepcopy(model)


def _repeated(sample: Batch, size: int) -> Batch:
    """`size` copies of the first sample, as a view without additional memory."""
    repeated: Batch = map_leaves(lambda array: np.broadcast_to(array[:1], (size, *array.shape[1:])), sample)
    return repeated


@contextmanager
def _process_state_restored() -> Iterator[None]:
    """Restore random state, default dtype and gradient mode after running the user's code."""
    cpu = torch.device("cpu")
    before, dtype, gradients = random_state.capture(cpu), torch.get_default_dtype(), torch.is_grad_enabled()
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    try:
        with warnings.catch_warnings():
            # torch's deepcopy reads the address of a tensor, which fake tensors warn about.
            warnings.filterwarnings("ignore", "Accessing the data pointer")
            yield
    finally:
        random_state.restore(before, cpu)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)


def _untraceable(error: BaseException) -> NotMeasurable:
    text = " ".join(str(error).split())
    if isinstance(error, DataDependentOutputException):
        return NotMeasurable("The model or loss branches on the value of a tensor.")
    if isinstance(error, DynamicOutputShapeException):
        return NotMeasurable("The size of a tensor depends on the values of another.")
    if isinstance(error, UnsupportedOperatorException | UnsupportedFakeTensorException):
        return NotMeasurable("An operation does not declare the shape of its result.")
    shortened = text if len(text) <= 200 else f"{text[:200]}…"
    return NotMeasurable(f"The task raised {type(error).__name__}: {shortened}")
