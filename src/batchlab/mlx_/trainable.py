"""The Trainable implementation for MLX: the user's model, loss and optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from batchlab.core.errors import InputError
from batchlab.core.nested import batch_size, leaves, map_leaves
from batchlab.core.out_of_memory import as_out_of_memory
from batchlab.core.protocols import AddedNorms, Batch, MemoryReading, StepStats
from batchlab.core.record import NoGradientSamples
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.core.targets import count_targets
from batchlab.core.task import Task
from batchlab.mlx_ import memory, optimizers, random_state, state
from batchlab.mlx_.diagnostics import StepWatch, forward_readings, numbers
from batchlab.mlx_.gradient_norms import NormSums, norm_layer_names
from batchlab.mlx_.modules import evaluation_mode

_NARROW = (mx.bfloat16, mx.float16)


class MlxTrainable:
    """One model on one device. Nothing is allocated before `init`; nothing between two `apply` waits for the device.

    MLX builds a graph and computes it when a value is needed. Here it is computed after every micro-batch and every
    step, so a graph never holds more than one of them. With `device.compile` the forward and backward passes are
    compiled, once per shape; evaluation is not.
    """

    def __init__(self, task: Task, device: DeviceSettings, optimizer: OptimizerSettings) -> None:
        self.sample_independent = task.sample_independent is not False
        if device.memory_optimizations:
            raise InputError(
                f"device.memory_optimizations: {', '.join(device.memory_optimizations)} are not possible with MLX; "
                "use a smaller micro-batch, or device.precision=bf16."
            )
        self._task = task
        if device.precision == "fp16" or device.compile == "reduce-overhead":
            raise InputError(
                "MLX has no fp16 with a scaled loss, and no CUDA graphs; use device.precision=bf16 or fp32, and "
                "device.compile=off or default."
            )
        self._compile = device.compile != "off"
        self._narrow = device.precision == "bf16"
        self._optimizer_settings = optimizer
        self._grad_clip = optimizer.config.grad_clip
        self.model: nn.Module
        self.optimizer: optimizers.GroupedOptimizer
        self._gradient: Any = None
        self._loss: mx.array | None = None
        self._watch: StepWatch | None = None
        self._detail: Literal["light", "full"] = "light"
        self._passes: Callable[..., tuple[mx.array, Any]]

    def init(self, seed: int) -> None:
        """Create parameters, optimizer state and random state. The same seed gives bit-identical parameters."""
        memory.restart_peak()
        random_state.seed_everything(seed)
        self._gradient = self._loss = self._watch = None
        with _failed_allocations():
            self._build()

    def _build(self) -> None:
        model = self._task.model()
        if not isinstance(model, nn.Module):
            raise InputError(f"model=… returned {type(model).__name__}; return an mlx.nn.Module.")
        self.model = model.train()
        mx.eval(model.parameters())
        if not tree_flatten(model.trainable_parameters()):
            raise InputError(f"model=… returned a {type(model).__name__} without trainable parameters.")
        self.optimizer = optimizers.build(model, self._task.optimizer, self._optimizer_settings)
        mx.eval(self.optimizer.state())
        gradient = mx.value_and_grad(self._weighted_loss)
        if self._compile:
            captured = [model.state, mx.random.state]
            gradient = mx.compile(gradient, inputs=captured, outputs=captured)
        self._passes = gradient

    def _weighted_loss(self, parameters: Any, arrays: Any, factor: mx.array, count: mx.array) -> mx.array:
        """factor · Σ losses, computed with these trainable parameters. `count`: targets that a mean is over."""
        self.model.update(self._narrowed(parameters))
        loss, is_sum = self._total(self._task.loss(self.model, *self._narrowed(arrays)))
        return loss * factor if is_sum else loss * (factor * count)

    def _narrowed(self, tree: Any) -> Any:
        """With bf16, floating-point arrays as bfloat16; parameters and their gradients stay float32 outside."""
        if not self._narrow:
            return tree
        return tree_map(lambda x: x.astype(mx.bfloat16) if mx.issubdtype(x.dtype, mx.floating) else x, tree)

    def count(self, batch: Batch) -> float:
        """Number of targets that the loss averages over: the task's `count`, or that of `core.targets`."""
        return float(self._task.count(*batch)) if self._task.count is not None else count_targets(batch)

    def accumulate(self, batch: Batch, weight: float) -> None:
        """Add the gradient of weight · Σ losses over the batch. Raises OutOfMemory above the memory limit."""
        self._add(self._gradient_of(batch, weight))

    def _gradient_of(self, batch: Batch, weight: float) -> tuple[mx.array, Any]:
        """(weight · Σ losses, its gradient). The model's parameters are the same afterwards, to the bit."""
        parameters = self.model.trainable_parameters()
        arrays = map_leaves(on_device, batch)
        with _failed_allocations():
            self._end_phase("data", list(leaves(arrays)))
            passed = self._passes(parameters, arrays, mx.array(weight), mx.array(self.count(batch)))
            self._end_phase("forward", passed[0])
            self._end_phase("backward", passed[1])
        self.model.update(parameters)  # those of the pass belong to its graph, and are narrow with bf16
        return passed

    def _add(self, passed: tuple[mx.array, Any]) -> None:
        loss, gradient = passed
        if self._loss is not None:
            loss, gradient = self._loss + loss, tree_map(mx.add, self._gradient, gradient)
        self._loss, self._gradient = loss, gradient
        with _failed_allocations():
            mx.async_eval(loss, gradient, self.model.parameters())
            memory.require_within_limit()

    def accumulate_measured(
        self, batches: Sequence[Batch], weight: float, parameters: Literal["all", "norm_layers"]
    ) -> AddedNorms | NoGradientSamples:
        """`accumulate` each batch in turn; returns the norms of their gradients."""
        layers = norm_layer_names(self.model)
        reason = NoGradientSamples.NO_NORM_LAYERS if parameters == "norm_layers" and not layers else None
        if reason is None and len(batches) < 2:
            reason = NoGradientSamples.SAMPLES_NOT_SEPARATED
        sums = NormSums(layers, parameters)
        for number, batch in enumerate(batches, 1):
            passed = self._gradient_of(batch, weight)
            last = self.count(batch) * weight if 1 < number == len(batches) else None
            if reason is None:
                sums.add(self._gradient, passed[1], last)
            self._add(passed)
        return reason or sums.added(self._gradient)

    def apply(self, learning_rate: float) -> StepStats:
        """Clip, step at this learning rate and clear the gradients; returns statistics of the global batch."""
        if self._loss is None:
            raise RuntimeError("apply() needs at least one accumulate() before it")
        loss, gradient = self._loss, self._gradient
        self._loss = self._gradient = None
        if self._watch is not None:
            self._watch.before_update(gradient)
        norm, clipped, gradient = self._clip(gradient)
        self.optimizer.step(self.model, gradient, learning_rate)
        with _failed_allocations():
            mx.async_eval(loss, norm, clipped, self.model.parameters(), self.optimizer.state())
            if self._watch is not None:
                self._watch.after_update(learning_rate, loss, norm)
            memory.require_within_limit()
        return StepStats(loss, norm, clipped)

    def watch(self, detail: Literal["light", "full"]) -> None:
        """Measure the next optimizer step."""
        self._detail, self._watch = detail, StepWatch(self.model, detail, self.synchronize)
        self._watch.start()

    def _end_phase(self, phase: Literal["data", "forward", "backward"], computed: Any) -> None:
        if self._watch is not None:
            self._watch.end_phase(phase, computed)

    def readings(self, batch: Batch) -> dict[str, float]:
        """Readings of the watched step and of an uncompiled evaluation pass over `batch`."""
        if self._watch is None:
            raise RuntimeError("readings() needs a watch() and a step before it")
        watched, self._watch = self._watch.readings(), None
        inside = forward_readings(self.model, lambda: self._evaluation_result(batch), self._detail)
        with _failed_allocations():
            found = numbers({**watched, **inside})
        memory.require_within_limit()
        return found

    def _clip(self, gradient: Any) -> tuple[mx.array, mx.array, Any]:
        squares = [mx.square(one.astype(mx.float32)).sum() for _, one in tree_flatten(gradient)]
        norm = mx.sqrt(mx.stack(squares).sum())
        if self._grad_clip is None:
            return norm, mx.array(0.0), gradient
        factor = mx.minimum(self._grad_clip / (norm + 1e-6), 1.0)  # as torch.nn.utils.clip_grads_with_norm_
        return norm, norm > self._grad_clip, tree_map(lambda one: one * factor.astype(one.dtype), gradient)

    def evaluate(self, batch: Batch) -> tuple[mx.array, float]:
        """(Σ losses, count) in evaluation mode. Changes nothing; the same batch gives bit-identical results."""
        return self.evaluate_draw(batch, 0)

    def evaluate_draw(self, batch: Batch, draw: int) -> tuple[mx.array, float]:
        """`evaluate` with the random numbers of one draw, which a loss that draws none does not feel."""
        result = self._evaluation_result(batch, draw)
        loss, is_sum = self._total(result)
        count = float(result[1]) if isinstance(result, tuple | list) else self.count(batch)
        total = loss if is_sum else loss * count
        with _failed_allocations():
            mx.async_eval(total)
            memory.require_within_limit()
        return total, count

    def measure(self, batch: Batch) -> tuple[float, float]:
        """(Σ metric, count) of the task's metric in evaluation mode; a mean counts once for every sample."""
        assert self._task.metric is not None
        found = self._evaluated(self._task.metric, batch)
        pair = isinstance(found, tuple | list) and len(found) == 2
        try:
            value, count = (float(found[0]), float(found[1])) if pair else (float(found), float(batch_size(batch)))
        except (TypeError, ValueError):
            raise InputError(
                f"metric(model, …) returned {type(found).__name__}; return one number, the mean, or (sum, count)."
            ) from None
        return (value if pair else value * count), count

    def _evaluation_result(self, batch: Batch, draw: int = 0) -> Any:
        """The result of the user's loss in evaluation mode, with random numbers from a fixed seed per draw."""
        return self._evaluated(self._task.loss, batch, draw)

    def _evaluated(self, function: Callable[..., Any], batch: Batch, draw: int = 0) -> Any:
        held = self.model.parameters()  # a model may replace some, e.g. running statistics
        with evaluation_mode(self.model), random_state.fixed(draw), _failed_allocations():
            self.model.update(self._narrowed(held))
            result = function(self.model, *self._narrowed(map_leaves(on_device, batch)))
            mx.eval(result)
        self.model.update(held)
        return result

    def _total(self, result: Any) -> tuple[mx.array, bool]:
        """The loss as a float32 number, and whether it is a sum."""
        pair = isinstance(result, tuple | list) and len(result) == 2
        loss = result[0] if pair else result
        if not isinstance(loss, mx.array):
            raise InputError(
                f"loss(model, …) returned {type(loss).__module__}.{type(loss).__name__}, which has no gradient; "
                "compute it with mlx.core from the model's output on, and return one number, the mean, or (sum, count)."
            )
        if loss.size != 1:
            raise InputError(
                f"loss(model, …) returned an array of shape {loss.shape}; return one number, the mean, or (sum, count)."
            )
        loss = loss.reshape(())
        return loss.astype(mx.float32) if loss.dtype in _NARROW else loss, pair or self._task.reduction == "sum"

    def state(self) -> bytes:
        """Everything `load` needs to continue: model, optimizer and random state. On a CPU a run continues
        bit-identically."""
        arrays = {f"model.{name}": value for name, value in tree_flatten(self.model.parameters())}
        arrays |= {f"optimizer.{name}": value for name, value in self.optimizer.state().items()}
        return state.write(arrays, random_state.capture())

    def load(self, content: bytes) -> None:
        """Restore what `state` returned. Raises ValueError for other bytes; no code is executed."""
        arrays, random = state.read(content)
        model, optimizer = (_under(prefix, arrays) for prefix in ("model.", "optimizer."))
        expected = {name: value.shape for name, value in tree_flatten(self.model.parameters())}
        if {name: value.shape for name, value in model.items()} != expected:
            raise ValueError("this is the state of another model")
        self.model.update(tree_unflatten(list(model.items())))
        self.optimizer.load(optimizer)
        random_state.restore(random)
        self._gradient = self._loss = None

    def memory(self) -> MemoryReading:
        """Current bytes and the peak since `init`, of arrays above the baseline."""
        return memory.read()

    def synchronize(self) -> float:
        """Wait until the device is idle and return the time in seconds. Raises OutOfMemory above the memory limit."""
        with _failed_allocations():
            mx.synchronize()  # everything was sent to it
        memory.require_within_limit()
        return time.perf_counter()


def _under(prefix: str, arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def on_device(array: Any) -> mx.array:
    """A data array as MLX takes it: integers of up to 16 bits become int32, so that a loss can subtract; images of
    bytes (four dimensions, the batch included) stay as small as they are; float64, which Metal lacks, becomes float32.
    """
    small = array.dtype.kind in "iu" and array.dtype.itemsize < 4
    if small and not (array.dtype == np.uint8 and array.ndim >= 4):
        array = array.astype(np.int32)
    elif array.dtype == np.float64:
        array = array.astype(np.float32)
    return mx.array(array)


@contextmanager
def _failed_allocations() -> Iterator[None]:
    """Inside the context, a failed allocation is OutOfMemory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        _reraise(error)


def _reraise(error: BaseException) -> NoReturn:
    out_of_memory = as_out_of_memory(error)
    if out_of_memory is None:
        raise error
    raise out_of_memory from error
