"""The Trainable implementation for torch: the user's model, loss and optimizer."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, BinaryIO, Literal, NoReturn, SupportsFloat, cast

import numpy as np
import torch
from torch import Tensor, nn

from batchlab.core.errors import InputError
from batchlab.core.nested import batch_size, map_leaves, select
from batchlab.core.nvml import CardState, card_state
from batchlab.core.out_of_memory import as_out_of_memory
from batchlab.core.protocols import AddedNorms, Batch, ByteSink, MemoryReading, StepStats
from batchlab.core.ranks import Ranks
from batchlab.core.record import NoGradientSamples
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.core.targets import count_targets
from batchlab.core.task import Task
from batchlab.torch_ import flops, memory, memory_optimizations, optimizers, random_state
from batchlab.torch_.chunked_loss import Deferral
from batchlab.torch_.device import torch_device
from batchlab.torch_.diagnostics import StepWatch, forward_readings, numbers
from batchlab.torch_.gradient_norms import GradientNorms, added_norms
from batchlab.torch_.gradient_sum import GradientSum
from batchlab.torch_.loss_scaling import LossScaling
from batchlab.torch_.norm_layer_samples import NormLayerSamples
from batchlab.torch_.ranks import TorchRanks

_NARROW = (torch.bfloat16, torch.float16)


class TorchTrainable:
    """One model on one device. Nothing is allocated before `init`; nothing between two `apply` waits for the device.

    With `device.compile`, the forward and backward passes are compiled in that mode. Evaluation runs uncompiled, so
    that a worker compiles for one micro-batch shape only. Reaching the compiler's recompile limit is an error.

    In fp16 the loss is scaled (`loss_scaling`), and a step whose gradients overflow changes nothing but the scale.
    """

    def __init__(self, task: Task, device: DeviceSettings, optimizer: OptimizerSettings) -> None:
        self.sample_independent = task.sample_independent is not False
        self.device = torch_device(device.name)
        self._task = task
        self._compile = device.compile
        self._memory_optimizations = device.memory_optimizations
        self._deferral: Deferral | None = None
        self._optimizer_settings = optimizer
        self._grad_clip = optimizer.config.grad_clip
        narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(device.precision)
        self._autocast = None if narrow is None else torch.autocast(self.device.type, dtype=narrow)
        self._precision = device.precision
        self._captures = device.compile == "reduce-overhead" and self.device.type == "cuda"
        self._scaling: LossScaling
        self.model: nn.Module
        self.optimizer: optimizers.GroupedOptimizer
        self._parameters: list[nn.Parameter] = []
        self._loss: Tensor | None = None
        self._seed = 0
        self._shared: GradientSum | None = None
        self._detail: Literal["light", "full"] = "light"
        self._watch: StepWatch | None = None

    def init(self, seed: int) -> None:
        """Create parameters, optimizer state and random state. The same seed gives bit-identical parameters."""
        memory.restart_peak(self.device)
        random_state.seed_everything(seed)
        self._seed, self._shared = seed, None
        try:
            self._build()
        except (RuntimeError, MemoryError) as error:
            _reraise(error)

    def _build(self) -> None:
        model = self._task.model()
        if not isinstance(model, nn.Module):
            raise InputError(f"model=… returned {type(model).__name__}; return a torch.nn.Module.")
        self.model = model.to(self.device).train()
        self._deferral = memory_optimizations.apply_to_model(model, self._memory_optimizations, compiled=self._compiled)
        if not optimizers.trainable(model):
            raise InputError(f"model=… returned a {type(model).__name__} without trainable parameters.")
        self.optimizer = optimizers.build(
            model,
            self._task.optimizer,
            self._optimizer_settings,
            self.device,
            fused="fused_optimizer" in self._memory_optimizations,
            steps_left_out=self._scales_loss,
        )
        self._parameters = optimizers.trainable(model)
        self._loss = self._watch = None
        self._scaling = LossScaling(self.device, enabled=self._scales_loss)
        self._clear_gradients()
        if self._compiled:
            # The default is to continue uncompiled without an error.
            torch._dynamo.config.fail_on_recompile_limit_hit = True
            self.model.compile(mode=self._compile)

    @property
    def _compiled(self) -> bool:
        return self._compile != "off"

    @property
    def _scales_loss(self) -> bool:
        return self._precision == "fp16"

    def _clear_gradients(self) -> None:
        """Drop all gradients. Captured graphs add to gradients in place, so these are kept and set to zero."""
        if not self._captures:
            for parameter in self._parameters:
                parameter.grad = None
            return
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        torch._foreach_zero_([parameter.grad for parameter in self._parameters if parameter.grad is not None])

    def join(self, ranks: Ranks) -> None:
        """Step on gradients summed over these ranks. All but rank 0 get random numbers of their own."""
        if not isinstance(ranks, TorchRanks):
            raise TypeError(f"torch cannot add up gradients over {type(ranks).__name__}")
        self._shared = GradientSum(self._parameters, ranks)
        if ranks.rank:
            random_state.seed_everything(random_state.seed_of_rank(self._seed, ranks.rank))

    def accumulate_last(self, batch: Batch, weight: float) -> None:
        """`accumulate` the step's last batch on this rank: sums over ranks begin during its backward pass."""
        assert self._shared is not None
        self._shared.last_pass()
        self.accumulate(batch, weight)

    def rank_state(self) -> bytes:
        """The random state, which differs between ranks."""
        file = io.BytesIO()
        torch.save(random_state.capture(self.device), file)
        return file.getvalue()

    def load_rank_state(self, state: bytes) -> None:
        """Restore what `rank_state` returned."""
        random_state.restore(torch.load(io.BytesIO(state), map_location="cpu", weights_only=True), self.device)

    def sum_parts(self) -> list[int]:
        """Bytes of each bucket of gradients, and of what is added up after the last of them."""
        assert self._shared is not None
        return self._shared.parts

    def time_sum(self, size: int) -> float:
        """Seconds of one sum of `size` bytes in float32, over the backend that adds up gradients."""
        assert self._shared is not None
        return self._shared.seconds(size, self.synchronize)

    def count(self, batch: Batch) -> float:
        """Number of targets that the loss averages over: the task's `count`, or that of `core.targets`."""
        return float(self._task.count(*batch)) if self._task.count is not None else count_targets(batch)

    def accumulate(self, batch: Batch, weight: float) -> None:
        """Add the gradient of weight · Σ losses over the batch. Raises OutOfMemory if an allocation fails."""
        try:
            self._end_phase("data")
            if self._captures:
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            loss, factor = self._total(self._forward(batch), batch)
            if self._deferral is not None:
                self._deferral.require_use()
            weighted = loss * (weight * factor)
            self._end_phase("forward")
            self._scaling.scale(weighted).backward()  # type: ignore[no-untyped-call]
            self._end_phase("backward")
        except (RuntimeError, MemoryError) as error:
            _reraise(error)
        detached = weighted.detach()
        self._loss = detached if self._loss is None else self._loss + detached

    def accumulate_measured(
        self, batches: Sequence[Batch], weight: float, parameters: Literal["all", "norm_layers"]
    ) -> AddedNorms | NoGradientSamples:
        """`accumulate` each batch in turn; returns the norms of their gradients, or why these cannot be measured.

        A compiled model gives no per-sample gradients, because hooks on its layers would trigger recompilation.
        """
        norms = GradientNorms(self.model, parameters)
        samples = NormLayerSamples(nn.Module() if self._compiled else self.model)
        passes = []
        with norms.watching(), samples.watching():
            for number, batch in enumerate(batches, 1):
                norms.begin_pass(self.count(batch) * weight if 1 < number == len(batches) else None)
                samples.begin_pass(batch_size(batch))
                self.accumulate(batch, weight)
                passes.append(norms.end_pass())
                samples.end_pass([count * weight for count in self._sample_counts(batch)])
        added = added_norms(norms, passes, samples.sums())
        return self._scaling.unscaled(added) if isinstance(added, AddedNorms) else added

    def _sample_counts(self, batch: Batch) -> list[float]:
        """Number of targets of each sample of the batch."""
        size = batch_size(batch)
        if self._task.count is None and isinstance(batch[-1], np.ndarray):
            return [batch[-1].size / size] * size
        return [self.count(select(batch, slice(at, at + 1))) for at in range(size)]

    def apply(self, learning_rate: float) -> StepStats:
        """Clip, step at this learning rate and clear the gradients; returns statistics of the global batch."""
        if self._loss is None:
            raise RuntimeError("apply() needs at least one accumulate() before it")
        loss, self._loss = self._loss, None
        try:
            if self._shared is not None:
                loss = self._shared.finish(loss)
            self._scaling.unscale(self.optimizer)
            if self._watch is not None:
                self._watch.before_update()
            norm, clipped = self._clip()
            self.optimizer.set_learning_rate(learning_rate)
            self._scaling.step(self.optimizer)
            if self._watch is not None:
                self._watch.after_update(learning_rate, loss, norm)
        except (RuntimeError, MemoryError) as error:
            _reraise(error)
        self._clear_gradients()
        return StepStats(loss, norm, clipped, ~torch.isfinite(norm) if self._scales_loss else 0.0)

    def _clip(self) -> tuple[Tensor, Tensor | float]:
        gradients = [_coalesced(parameter) for parameter in self._parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self._grad_clip is None:
            return norm, 0.0
        factor = torch.clamp(self._grad_clip / (norm + 1e-6), max=1.0)  # as torch.nn.utils.clip_grads_with_norm_
        torch._foreach_mul_(gradients, factor.to(self.device))
        return norm, norm > self._grad_clip

    def watch(self, detail: Literal["light", "full"]) -> None:
        """Measure the next optimizer step."""
        self._detail, self._watch = detail, StepWatch(self.model, detail, self.synchronize)
        self._watch.start()

    def _end_phase(self, phase: Literal["data", "forward", "backward"]) -> None:
        if self._watch is not None:
            self._watch.end_phase(phase)

    def readings(self, batch: Batch) -> dict[str, float]:
        """Readings of the watched step and of an uncompiled evaluation pass over `batch`."""
        if self._watch is None:
            raise RuntimeError("readings() needs a watch() and a step before it")
        watched, self._watch = self._watch.readings(), None
        inside = forward_readings(self.model, lambda: self._evaluation_result(batch), self._detail)
        return numbers({**watched, **inside})

    def evaluate(self, batch: Batch) -> tuple[Tensor, float]:
        """(Σ losses, count) in evaluation mode. Changes nothing; the same batch gives bit-identical results."""
        return self.evaluate_draw(batch, 0)

    def evaluate_draw(self, batch: Batch, draw: int) -> tuple[Tensor, float]:
        """`evaluate` with the random numbers of one draw, which a loss that draws none does not feel."""
        result = self._evaluation_result(batch, draw)
        loss, factor = self._total(result, batch)
        count = float(result[1]) if isinstance(result, tuple | list) else self.count(batch)
        return loss.detach() * factor, count

    def measure(self, batch: Batch) -> tuple[float, float]:
        """(Σ metric, count) of the task's metric in evaluation mode; a mean counts once for every sample."""
        metric = self._task.metric
        assert metric is not None
        found = self._evaluated(batch, 0, partial(self._call, metric))
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
        return self._evaluated(batch, draw, self._forward)

    def _evaluated(self, batch: Batch, draw: int, forward: Callable[[Batch], Any]) -> Any:
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            # no_grad instead of inference_mode: tensors that a model caches here must be usable in training
            with torch.no_grad(), self._uncompiled(), self._fixed_randomness(draw):
                return forward(batch)
        except (RuntimeError, MemoryError) as error:
            _reraise(error)
        finally:
            for module, training in modes:
                module.training = training

    def _fixed_randomness(self, draw: int) -> AbstractContextManager[None]:
        return random_state.fixed(self.device, draw)

    def _uncompiled(self) -> AbstractContextManager[Any]:
        """Run compiled modules in eager mode. Without compilation, avoids importing the compiler."""
        return torch.compiler.set_stance("force_eager") if self._compiled else nullcontext()

    def _forward(self, batch: Batch) -> Any:
        return self._call(self._task.loss, batch)

    def _call(self, function: Callable[..., Any], batch: Batch) -> Any:
        tensors = map_leaves(self._tensor, batch)
        if self._autocast is None:
            return function(self.model, *tensors)
        with self._autocast:
            return function(self.model, *tensors)

    def _tensor(self, array: Any) -> Tensor:
        """Copy an array to the device, with the type of `on_device`.

        On a CPU, arrays of the right type are not copied. On CUDA, the copy is asynchronous through pinned memory.
        """
        tensor = torch.from_numpy(np.require(array, requirements=("C", "W")))
        wanted = on_device(tensor, self.device)
        if wanted.itemsize < tensor.dtype.itemsize:
            tensor = tensor.to(wanted)
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        tensor = tensor.to(self.device, non_blocking=True)
        return tensor.to(wanted)

    def _total(self, result: Any, batch: Batch) -> tuple[Tensor, float]:
        """The loss tensor, and the factor that turns it into Σ losses."""
        pair = isinstance(result, tuple | list) and len(result) == 2
        loss = result[0] if pair else result
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise InputError(
                f"loss(model, …) returned {given}; return one number, the mean, or (sum, count)"
                + (": its loss." if isinstance(getattr(loss, "loss", None), Tensor) else ".")
            )
        if loss.ndim or loss.dtype in _NARROW:
            loss = loss.reshape(()).float() if loss.dtype in _NARROW else loss.reshape(())
        is_sum = pair or self._task.reduction == "sum"
        return loss, 1.0 if is_sum else self.count(batch)

    def state(self) -> bytes:
        """Everything `load` needs to continue: model, optimizer and random state.

        On a CPU a run continues bit-identically. On CUDA it does as far as its kernels are deterministic, which
        attention's backward pass and sums by atomic additions are not.
        """
        file = io.BytesIO()
        self.write_state(file)
        return file.getvalue()

    def write_state(self, sink: ByteSink) -> None:
        """Write what `state` returns, one tensor at a time."""
        model = self.model.state_dict()
        content = {
            "model": model,
            "buffers": {name: value for name, value in self.model.named_buffers() if name not in model},
            "optimizers": self.optimizer.state(),
            "random": random_state.capture(self.device),
            "loss_scale": self._scaling.state(),
        }
        torch.save(content, cast("io.BytesIO", sink))

    def load(self, state: bytes) -> None:
        """Restore what `state` returned. Only tensors and plain values are loaded; no code is executed."""
        self.read_state(io.BytesIO(state))

    def read_state(self, source: BinaryIO) -> None:
        """`load` from a file, one tensor at a time. On a CPU the optimizer keeps the tensors that were read."""
        content = torch.load(source, map_location="cpu", weights_only=True)
        self.model.load_state_dict(content["model"])
        buffers = dict(self.model.named_buffers())
        for name, value in content["buffers"].items():
            buffers[name].copy_(value)
        self.optimizer.load(content["optimizers"])
        random_state.restore(content["random"], self.device)
        self._scaling.load(content["loss_scale"])
        self._loss = None

    def to_host(self, values: Sequence[SupportsFloat]) -> list[float]:
        """The values as numbers, in one transfer from the device."""
        if self.device.type == "cpu":
            return [float(value) for value in values]
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        held = [value.to(wide) if isinstance(value, Tensor) else float(value) for value in values]
        there = [value for value in held if isinstance(value, Tensor)]
        found = iter(torch.stack(there).tolist() if there else [])
        return [next(found) if isinstance(value, Tensor) else value for value in held]

    def training_flops(self, batch: Batch) -> float:
        """Operations of a training step over the batch, counted in one forward pass in evaluation mode."""
        return flops.training_flops(lambda: self._evaluation_result(batch))

    def peak_flops(self) -> float | None:
        """Operations per second of a large matrix product in the precision of this run."""
        return flops.measured_peak(self.device, self._precision, self.synchronize)

    def card_state(self) -> CardState:
        """What NVIDIA's driver tells of the card; of other devices nothing."""
        if self.device.type != "cuda":
            return CardState()
        return card_state(str(torch.cuda.get_device_properties(self.device).uuid))

    def memory(self) -> MemoryReading:
        """Current bytes and the peak since `init`; on a CPU, those of the process above its baseline."""
        return memory.read(self.device)

    def synchronize(self) -> float:
        """Wait until the device is idle and return the time in seconds."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        return time.perf_counter()


def _coalesced(parameter: nn.Parameter) -> Tensor:
    """The values of a gradient; of a sparse one, after equal indices were added up, those that are not zero."""
    gradient = parameter.grad
    assert gradient is not None
    if not gradient.is_sparse:
        return gradient
    parameter.grad = gradient.coalesce()
    return parameter.grad._values()


def on_device(tensor: Tensor, device: torch.device) -> torch.dtype:
    """The type of a data array on the device.

    Integers become int64, which torch's embeddings and losses require, except images of bytes (four dimensions, the
    batch included), which stay as small as they are until the model converts them. Metal has no float64.
    """
    if tensor.dtype is torch.float64 and device.type == "mps":
        return torch.float32
    images = tensor.dtype is torch.uint8 and tensor.ndim >= 4
    keeps = images or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool
    return tensor.dtype if keeps else torch.int64


def _reraise(error: Exception) -> NoReturn:
    """Raise OutOfMemory for a failed allocation, and any other error unchanged."""
    if (failure := as_out_of_memory(error)) is not None:
        raise failure from None
    raise error
