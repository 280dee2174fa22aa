"""The interfaces between the parts of batchlab, and the values that cross them.

Each is a small Protocol with a contract test in `batchlab.testing`, which every implementation can run, also your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Literal,
    NamedTuple,
    Protocol,
    SupportsFloat,
    TypeVar,
    runtime_checkable,
)

from batchlab.core.errors import InputError
from batchlab.core.nvml import CardState
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.pairing import Pairing
from batchlab.core.ranks import ALONE, Ranks
from batchlab.core.record import (
    Environment,
    MeasuredMemory,
    MetricRow,
    NoGradientSamples,
    Outcome,
    Record,
    Result,
    TraceResult,
)
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Spec, TraceSpec
from batchlab.core.task import Task

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Batch = tuple[Any, ...]
"""What the loss gets after the model: (inputs, targets) for pairs, a single dict for dicts. Each part is
`core.nested.Nested`; the first axis of every array is the sample."""


class StepStats(NamedTuple):
    """Statistics of one optimizer step. Values may be on the device: `float()` of one may wait for it."""

    loss: SupportsFloat  # mean over the global batch's targets, before the update
    grad_norm: SupportsFloat  # global L2 norm before clipping
    clipped: SupportsFloat  # 1.0 where the norm was above the limit, else 0.0
    skipped: SupportsFloat = 0.0  # 1.0 where gradients overflowed in fp16, so that nothing was changed


class MemoryReading(NamedTuple):
    """Bytes of memory now and at their peak since `init`; None where the device does not tell.

    `in_use_bytes` and its peak count live tensors; on a CPU, resident memory of the process above its baseline.
    `reserved_bytes` are the segments that an allocator holds. `peak_bytes` counts what `measured` names.
    """

    in_use_bytes: int | None
    reserved_bytes: int | None
    peak_in_use_bytes: int | None
    peak_bytes: int | None
    measured: MeasuredMemory


class AddedNorms(NamedTuple):
    """Norms of what each micro-batch of a step added to the gradient, v₁ … v_K, and of their sum.

    Values may be on the device. `norm_layers` holds the first two over the parameters of norm layers alone.

    `signs`, with u = v₁ + … + v_{K−1} and s the last micro-batch's share of the step's targets: `difference` is
    Σᵢ |uᵢ/(1 − s) − v_Kᵢ/s|, `agreement` Σᵢ sign(uᵢ)·v_Kᵢ/s, `absolute` Σᵢ |uᵢ + v_Kᵢ|.

    `norm_layer_samples` is (Σ_j |w_j|²/s_j, |Σ_j w_j|²) over norm layers, w_j being what a single sample added and s_j
    its share of the step's targets; None where gradients of single samples are not known.
    """

    squared: Sequence[SupportsFloat]  # |v_k|²
    squared_sum: SupportsFloat  # |Σ v_k|²
    norm_layers: tuple[Sequence[SupportsFloat], SupportsFloat] | None
    signs: tuple[SupportsFloat, SupportsFloat, SupportsFloat] | None  # difference, agreement, absolute
    norm_layer_samples: tuple[SupportsFloat, SupportsFloat] | None = None


class ByteSink(Protocol):
    """What bytes are written to, in order; a file opened for writing is one."""

    def write(self, content: bytes, /) -> int:
        """Write all of it, and return how many bytes that was."""


class MemoryBound(NamedTuple):
    """What a process held before the measured work, and what was free on its device; None where that is unknown."""

    baseline_bytes: int | None
    available_bytes: int | None


class OutOfMemory(Exception):
    """Raised by a Trainable where the device is out of memory; the worker catches it and records the outcome.

    certain: False where a library failed in a way that lack of memory explains, but other causes as well.
    """

    def __init__(self, text: str = "", *, certain: bool = True) -> None:
        super().__init__(text)
        self.certain = certain


@runtime_checkable
class Trainable(Protocol):
    """The interface to a framework: a model, its optimizer and a device.

    One optimizer step is: `accumulate` each micro-batch with weight 1 / (sum of the global batch's counts), then
    `apply`. Nothing in between may wait for the device.
    """

    sample_independent: bool  # False where samples of one batch influence each other: the batch may not be split

    def init(self, seed: int) -> None:
        """New parameters, optimizer state and random state; the same seed gives the same parameters, to the bit."""

    def count(self, batch: Batch) -> float:
        """Targets in the batch that the loss averages over, known before the forward pass."""

    def accumulate(self, batch: Batch, weight: float) -> None:
        """Add the gradient of weight · Σ losses over the batch."""

    def apply(self, learning_rate: float) -> StepStats:
        """Clip, step at this learning rate, clear the gradients; statistics of the accumulated global batch."""

    def evaluate(self, batch: Batch) -> tuple[SupportsFloat, float]:
        """(Σ losses, count) in evaluation mode; changes nothing, and the same batch gives the same bits."""

    def state(self) -> bytes:
        """Everything `load` needs to continue: parameters, optimizer, random state. The run then continues to the
        same bits wherever the device's kernels are deterministic."""

    def load(self, state: bytes) -> None:
        """Continue from `state()`. Never executes code from the bytes, as pickle would."""

    def memory(self) -> MemoryReading:
        """Bytes now and at the peak."""

    def synchronize(self) -> float:
        """Wait until the device is idle and return the time on its clock, in seconds; also before `init`."""


@runtime_checkable
class SharesSums(Trainable, Protocol):
    """A Trainable that can be one of several ranks of a run; without it a run has one device.

    All ranks hold the same parameters. Each accumulates its own micro-batches, the last one with `accumulate_last`, at
    the weight 1 / (sum of the counts of all ranks).
    """

    def join(self, ranks: Ranks) -> None:
        """Until the next `init`, `apply` steps on the gradient, and tells the loss, summed over these ranks."""

    def accumulate_last(self, batch: Batch, weight: float) -> None:
        """`accumulate` the last batch of this rank's step; sums over ranks may begin during it."""

    def rank_state(self) -> bytes:
        """What differs between ranks: random state."""

    def load_rank_state(self, state: bytes) -> None:
        """Continue from `rank_state()`, after `load`."""

    def sum_parts(self) -> Sequence[int]:
        """Bytes of the sums over ranks that `apply` needs, in the order in which they begin: each when the last
        backward pass has come as far through these bytes."""

    def time_sum(self, size: int) -> float:
        """Seconds on the device's clock of a sum of `size` bytes, which all ranks begin together on idle devices."""


@runtime_checkable
class StreamsState(Trainable, Protocol):
    """A Trainable that writes and reads its state piece by piece, without a copy of all its bytes in memory."""

    def write_state(self, sink: ByteSink) -> None:
        """Write what `load` needs, as `state` returns it."""

    def read_state(self, source: BinaryIO) -> None:
        """`load` from a file that can be read at any place, from its first byte to its last."""


@runtime_checkable
class TransfersTogether(Protocol):
    """A Trainable whose device is asked once for many numbers; without it each is converted by `float`."""

    def to_host(self, values: Sequence[SupportsFloat]) -> list[float]:
        """The values as numbers, in their order. Waits for the device once."""


@runtime_checkable
class KnowsDevice(Protocol):
    """A Trainable that knows how much it computes, how fast its device does that at most, and what else runs there."""

    def training_flops(self, batch: Batch) -> float:
        """Floating-point operations of a training step over the batch; changes nothing."""

    def peak_flops(self) -> float | None:
        """Floating-point operations per second of a large dense matrix product in this precision, measured now."""

    def card_state(self) -> CardState:
        """Clock, use and processes of the device, as far as its driver tells."""


@runtime_checkable
class MeasuresGradients(Trainable, Protocol):
    """A Trainable that can measure the gradient of each micro-batch; without it a run has no noise scale."""

    def accumulate_measured(
        self, batches: Sequence[Batch], weight: float, parameters: Literal["all", "norm_layers"]
    ) -> AddedNorms | NoGradientSamples:
        """`accumulate` each batch in turn, to the same bits, on gradients that were clear.

        Returns the norms of what each batch added, or why they are not known. Takes two batches or more, or one where
        norm layers give gradients of single samples.
        """


@runtime_checkable
class Inspectable(Trainable, Protocol):
    """A Trainable that `batchlab check` can inspect. All values are host copies."""

    def parameter_count(self) -> int:
        """Trainable parameters."""

    def optimizer_family(self) -> Literal["adam", "sgd", "other"]:
        """'adam', 'sgd' or 'other', judged by the settings in its parameter groups."""

    def optimizer_groups(self) -> Sequence[tuple[OptimizerGroup, Sequence[str]]]:
        """The optimizer's parameter groups, with the names of their parameters; every parameter is in one."""

    def parameters(self) -> Mapping[str, npt.NDArray[Any]]:
        """Name → value of every trainable parameter."""

    def gradients(self) -> Mapping[str, npt.NDArray[Any]]:
        """Name → gradient accumulated since the last `apply`; absent where there is none."""

    def raw_loss(self, batch: Batch) -> float:
        """What the person's loss function returned on this batch in evaluation mode, before any weighting."""

    def loss_count(self, batch: Batch) -> float | None:
        """The count a loss that returns (sum, count) gave on this batch; None for a plain mean."""

    def without_randomness(self) -> None:
        """Switch dropout off until the next `init`, so that two passes can be compared."""

    def mixing_layer(self, batch: Batch, half: int) -> str | None:
        """First layer whose output for sample 0 … half−1 depends on the other samples; None when no layer does."""


@runtime_checkable
class EvaluatesDraws(Protocol):
    """Of a Trainable whose loss may draw random numbers even in evaluation, as a diffusion loss draws its noise."""

    def evaluate_draw(self, batch: Batch, draw: int) -> tuple[SupportsFloat, float]:
        """`evaluate` with the random numbers of one draw: other ones for every draw, the same ones every time. Draw 0
        is `evaluate`."""


@runtime_checkable
class MeasuresMetric(Protocol):
    """Of a Trainable whose task has a metric beside its loss."""

    def measure(self, batch: Batch) -> tuple[SupportsFloat, float]:
        """(Σ metric, count) in evaluation mode. Changes nothing."""


@runtime_checkable
class Diagnosable(Trainable, Protocol):
    """A Trainable that can take diagnostic snapshots of a step. Taking one changes no bit of the training."""

    def watch(self, detail: Literal["light", "full"]) -> None:
        """Observe the next optimizer step: its `accumulate` calls and its `apply`. May wait for the device."""

    def readings(self, batch: Batch) -> Mapping[str, float]:
        """Readings of the observed step, and of an evaluation-mode pass over `batch` after it, by `quantity/part`."""


class Dataset(Protocol):
    """Samples by index. Their order is decided in `data.stream`."""

    @property
    def digest(self) -> str:
        """Hexadecimal hash of the content, the same in every process; an attribute or a property."""

    def __len__(self) -> int: ...

    def gather(self, indices: npt.NDArray[np.int64]) -> Batch:
        """The samples at these indices, stacked."""


Question = TypeVar("Question")
Answer = TypeVar("Answer", contravariant=True)
Found = TypeVar("Found")


class Search(Protocol[Question, Answer]):
    """Proposes what to run next. Does no I/O, knows no device, and gets outcomes in the order it asked for them.

    `ask` proposes one round, and nothing when it is done; its size never depends on which run finished first.
    """

    def ask(self) -> Sequence[Question]: ...

    def tell(self, proposals: Sequence[Question], outcomes: Sequence[Answer]) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, reported by its worker."""

    run_id: str
    step: int
    steps: int
    tokens: int
    train_loss: float | None
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class Finished:
    """A run has ended, now or in an earlier session; its record is on disk."""

    spec: Spec
    record: Record


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run is awaited that another process holds, and nothing else is left to execute; or a run waits for a file.

    owner: who is awaited; may be empty. file: what they are making in the study's cache; empty where it is the run.
    """

    run_id: str
    owner: str
    file: str = ""


Event = Progress | Finished | Waiting


Setting = str | int | float | bool


class Tracker(Protocol):
    """An experiment tracker that shows a study's runs: TensorBoard, Weights & Biases, or your own.

    Several runs may be in progress at once; the rows of each come in the order of their steps. A tracker that raises an
    error is dropped with one warning; it never stops a run.
    """

    def begin(self, run: str, settings: Mapping[str, Setting]) -> None:
        """A run begins: all its rows follow, from the first. Replaces what was written of it before."""

    def row(self, run: str, row: MetricRow) -> None:
        """The next row of metrics.jsonl of a run that was begun."""

    def end(self, run: str, record: Record) -> None:
        """The run has ended, with any outcome; no row of it follows."""

    def close(self) -> None:
        """Write out everything, also of runs that have not ended. May be called twice."""


class Engine(Protocol):
    """Executes specs, in processes here or on other hosts. Knows nothing of losses or plots."""

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        """Queue a spec. `exclusive` ones run alone on the device, each in a fresh process."""

    def wait(self, timeout: float) -> list[Event]:
        """Events since the last call; blocks up to `timeout` seconds for the first one."""

    def close(self) -> None:
        """Stop all runs, which save checkpoints, and free everything. May be called twice."""


class Watched(Protocol):
    """A model in a person's own training loop, whose gradients `batchlab.observe` measures at sampled steps."""

    @property
    def why_not(self) -> NoGradientSamples | None:
        """Why gradients cannot be measured; None if they can."""

    def backward_pass(self, samples: int | None) -> AbstractContextManager[Callable[[Any], None]]:
        """Measure one backward pass of a sampled step; `samples`: of single samples too, over norm layers.

        What it gives takes the gradient, in frameworks that return gradients instead of keeping them.
        """

    def numbers(self) -> tuple[list[float], list[float]] | None:
        """(|v|², |u + v|² − |u|²) of each pass since the last call, u being the sum before it; None if one is not
        known. May wait for the device."""

    def of_all_processes(self, own: Sequence[float]) -> tuple[list[list[float]], float] | None:
        """Where processes share every step (data-parallel training): the numbers that each of them gives, in their
        order, and |g|² of the gradient g after the last pass, which is the mean over them; not a number where the last
        pass did not add up. None where this process trains alone. To be called by all of them."""

    def sample_numbers(self) -> tuple[list[float], float] | None:
        """n·Σ_j |v_j|² of each pass of n samples over norm layers, and |Σ_j v_j|² over all; None if not known."""

    def uncomputed_steps(self) -> int:
        """Steps in a row after which the loop had computed no parameter; 0 where it computes as it goes on, as it must
        in frameworks that compute at once. Called at the end of every step, before the numbers of a sampled one."""
        return 0

    def peak_bytes(self) -> int | None:
        """Most memory since the model was first observed."""

    def now(self) -> float:
        """Time in seconds, after waiting for the device."""


class Framework(Protocol):
    """What creates Trainables and knows its devices; `torch_`, `mlx_` and `simulated` are packages with one.

    Derive your own from it (docs/frameworks.md). What has a body here may stay as it is: nothing is imported early, no
    worker is forked, memory is found by running steps and not by a trace, and is neither known nor limited.
    """

    def resolve_device(self, name: str) -> str:
        """The device's full name; 'auto' is the best one here. Raises InputError where there is no such device."""

    def start(self, device: DeviceSettings, seed: int) -> None:
        """Prepare the process for a run: threads, precision flags, random state, compiler caches."""

    def watch_training(self, begun: Callable[[], None]) -> AbstractContextManager[None]:
        """Inside the context, call `begun` before every optimizer step of this process, whoever takes it."""
        return nullcontext()

    def import_all(self) -> None:
        """Import what the framework would import at its first use, so that processes forked afterwards need not."""
        return

    def one_thread(self) -> AbstractContextManager[None]:
        """Inside the context, computations start no threads, which a process forked afterwards would miss."""
        return nullcontext()

    def holds_device(self) -> bool:
        """Whether this process has begun to use what a process forked from it could not: an accelerator, threads."""
        return True

    def on_ranks(self, size: int, device: DeviceSettings, body: Callable[[Ranks], Found]) -> Found:
        """Run `body` as one of `size` ranks, each with a device of its own, and return what it returned here.

        What another rank raised is raised here. Raises InputError where this process is not one of `size`. By default,
        a framework has one device.
        """
        if size > 1:
            raise InputError(f"This framework trains on one device, not on {size}; omit --devices.")
        return body(ALONE)

    def trainable(self, task: Task, device: DeviceSettings, optimizer: OptimizerSettings) -> Inspectable:
        """A Trainable for this task, which allocates nothing before its `init`."""

    def trace(self, task: Task, spec: TraceSpec, sample: Batch, held_out: Batch) -> TraceResult:
        """Memory of whole steps at each of the spec's sizes, without the device and without allocating tensors.

        `sample` and `held_out` are batches of at least one sample; only their shapes matter.
        """
        return TraceResult(untraceable=NOT_TRACED)

    def trace_values(self, task: Task, spec: TraceSpec, batches: Iterable[Batch], held_out: Batch) -> TraceResult:
        """Memory of whole steps at the spec's first size on each of these batches, by running them on the host."""
        return TraceResult(untraceable=NOT_TRACED)

    def memory_bytes(self, task: Task, device: DeviceSettings) -> int | None:
        """All of the device's memory; a simulated task defines its device. None where it is unknown."""
        return None

    def unified_memory(self, device: DeviceSettings) -> bool:
        """Whether an accelerator shares its memory with the system, so that `memory_bytes` is what it recommends."""
        return False

    def bound_memory(self, device: DeviceSettings) -> MemoryBound:
        """Apply `device.memory_limit` above what the process holds now, and restart the count of the peak.

        Call once per process, after a warm-up step whose Trainable was deleted.
        """
        return MemoryBound(None, None)

    def release_memory(self) -> None:
        """Give memory that the framework keeps for later allocations back to the device."""
        return

    def watched(self, model: Any, parameters: Literal["all", "norm_layers"], scaler: Any) -> Watched:
        """The measuring part of `batchlab.observe`. Raises InputError where this model cannot be watched."""
        raise InputError(f"batchlab.observe cannot watch a {type(model).__name__}: its framework does not measure it.")

    def export_weights(self, state: BinaryIO, path: Path) -> bool:
        """Write the model's weights of a Trainable's state as safetensors; False where this framework writes none."""
        return False

    def environment(self, device: DeviceSettings) -> Environment:
        """Versions, device and thread count, for the record."""


NOT_TRACED = "This framework has no trace."


WriteState = Callable[[ByteSink], object]
"""Writes a state, from its first byte to its last."""


class RunContext(Protocol):
    """What a run can do besides computing: write rows and checkpoints, show progress, learn that it should stop."""

    cache_dir: Path
    path: Path
    """The run's own folder, for whatever its integration writes there."""
    repaired_lines: int

    def row(self, row: MetricRow) -> None:
        """Append to metrics.jsonl."""

    def progress(
        self, step: int, steps: int, tokens: int, train_loss: float | None, tokens_per_second: float | None
    ) -> None:
        """Show how far the run is; cheap to call often."""

    def save_checkpoint(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        """Replace the checkpoint atomically. `header["step"]` is the number of finished steps."""

    def load_checkpoint(self) -> tuple[dict[str, Any], BinaryIO] | None:
        """The last complete checkpoint, with the metrics rewound to its step; None, and no metrics, to start afresh.

        The state is read from its file, by whoever loads it, before the next checkpoint is saved.
        """

    def keep_end(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        """Keep a finished run's state for runs that start from it; it is not removed with the run's checkpoint."""

    def end_of(self, run_id: str) -> tuple[dict[str, Any], BinaryIO] | None:
        """The state that another run of the same study kept; None where it kept none."""

    def stop_requested(self) -> bool:
        """True after SIGTERM or Ctrl-C: the run should save and raise `Interrupted`."""


class KilledFromOutside(Exception):
    """What a run depends on was killed, and nothing shows that the run itself was the reason.

    The worker dies like it, so that the engine decides what that means, as of any worker that was killed.
    """


class Interrupted(Exception):
    """A run was asked to stop and has saved its checkpoint. It has no record, and resumes when submitted again."""


class RunResult(NamedTuple):
    """How a run ended, before that becomes a Record.

    `environment` is where it ran, if that is not the worker's own process.
    """

    outcome: Outcome
    reason: str
    result: Result | None
    pairing: Pairing = Pairing.NONE
    environment: Environment | None = None


class Integration(Protocol):
    """What trains a person's code where batchlab's own loop does not: their script, or their Trainer.

    Its worker calls `run` with specs of every kind. A kind that the integration cannot carry out is answered with the
    empty result of that kind where there is one (a TraceResult that says `untraceable`), else with a failed outcome.
    """

    def run(self, spec: Spec, context: RunContext) -> RunResult:
        """Carry out one spec: an InspectSpec gives a TaskInfo that names the integration, and so on.

        Running out of memory, divergence and errors of the person's code are outcomes, or pass through as those of
        batchlab's own loop do. `pairing` of a completed TrainSpec claims no more than was established for that run.
        Raises Interrupted where the context asks to stop, after ending everything that it started.
        """


class View(Protocol):
    """Where a study shows what it is doing."""

    def stage(self, title: str, runs: int | None = None) -> None:
        """A stage begins; it will execute `runs` specs, where that is known."""

    def say(self, text: str) -> None:
        """One line that stays."""

    def show(self, event: Event) -> None:
        """Show a run's progress or end."""

    def close(self) -> None:
        """Stop updating the screen."""
