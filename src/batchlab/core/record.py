"""The record of a run: outcome, numbers, environment. All values are in bytes, seconds and nats.

Running out of memory, diverging and crashing are outcomes here, never exceptions that end a study.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from batchlab.core.batch import Frozen, Unit
from batchlab.core.check import CheckResult
from batchlab.core.integration import IntegrationName
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.pairing import Pairing


class Outcome(StrEnum):
    """How a run ended. The record's `reason` gives the details in a sentence."""

    COMPLETED = "completed"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"  # the task raised an error, or its process died for a reason that is not memory

    @property
    def label(self) -> str:
        """The name with spaces: 'out of memory'."""
        return self.value.replace("_", " ")


class Environment(Frozen):
    """What a run was executed with. Records from different environments are reported, not silently compared."""

    batchlab: str
    python: str
    numpy: str
    framework: str = Field(default="", description="e.g. 'torch 2.13.0+cpu'")
    platform: str
    processor: str = ""
    instruction_set: str = Field(default="", description="the CPU capability the framework dispatched to")
    device: str = Field(default="cpu", description="device name as its driver reports it")
    device_memory_bytes: int | None = None
    card_uuid: str = Field(default="", description="of a CUDA card; cards of one kind differ in it")
    driver: str = Field(default="", description="version of NVIDIA's driver")
    cuda: str = Field(default="", description="version of CUDA, or of ROCm, that the framework is built with")
    compute_capability: str = Field(default="", description="of a CUDA card, e.g. '8.0'")
    max_clock_mhz: int | None = Field(default=None, description="the most that the card's multiprocessors may run at")
    cores: int = 1
    threads: int = 1


MeasuredMemory = Literal["allocated", "reserved", "process"]
"""What a number of bytes counts: live tensors (allocated), the segments an allocator holds (reserved), or the process
above its warmed-up baseline (process). It is what a memory limit on the device bounds."""


class FileDigest(Frozen):
    """A data file: which version of it was read (size, modification time, inode), and what it held."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str
    sample_sha256: str = Field(description="of evenly spaced blocks, which is cheap to check")


class TaskInfo(Frozen):
    """The task, its data and its device, as found by loading the task."""

    kind: Literal["inspect"] = "inspect"
    unit: Unit
    sequence_length: int
    train_samples: int | None = Field(description="None where a person's own trainer does not say")
    valid_samples: int | None
    vocabulary: int | None = None
    parameter_count: int | None
    optimizer_family: Literal["adam", "sgd", "other"]
    framework: str | None = Field(default=None, description="what computes in batchlab's own loop")
    integration: IntegrationName | None = Field(
        default=None, description="what trains it where batchlab's own loop does not"
    )
    own_optimizer: bool = False
    optimizer_groups: tuple[OptimizerGroup, ...] = Field(
        default=(), description="the optimizer's parameter groups, as they are at the reference batch size"
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="the experiment's settings that a person's trainer brings, as nested values"
    )
    data_source: str = Field(description="where the data comes from")
    data_digest: str
    data_files: dict[str, FileDigest] = Field(default_factory=dict, description="path → what was read")
    code: dict[str, str] = Field(default_factory=dict, description="path → sha256 of the person's own source files")
    device: str = Field(description="the resolved device name")
    device_memory_bytes: int | None = Field(default=None, description="all of the device's memory")
    unified_memory: bool = Field(default=False, description="the device shares its memory with the system")
    measured: MeasuredMemory | None = Field(default=None, description="what its peaks count, and a limit bounds")


Phase = Literal["forward", "backward", "optimizer", "evaluation"]


class PhasePeak(Frozen):
    """The peak of one phase of a step, in bytes of live storage by category."""

    phase: Phase
    parameter_bytes: int = Field(description="parameters and buffers")
    gradient_bytes: int
    optimizer_bytes: int = Field(description="optimizer state")
    activation_bytes: int = Field(description="kept from the forward pass for the backward pass, including the batch")
    temporary_bytes: int

    @property
    def total_bytes(self) -> int:
        return (
            self.parameter_bytes
            + self.gradient_bytes
            + self.optimizer_bytes
            + self.activation_bytes
            + self.temporary_bytes
        )


class TracePoint(Frozen):
    """Memory that one micro-batch size needs, without what kernels allocate internally."""

    micro_batch_size: int
    phases: tuple[PhasePeak, ...]
    reserved_bytes: int | None = Field(
        default=None, description="from a replay of the same steps through the CUDA caching allocator"
    )
    draw_bytes: tuple[int, ...] = Field(
        default=(), description="peak of each batch that ran, first the largest by content; empty for a trace"
    )

    @property
    def peak(self) -> PhasePeak:
        return max(self.phases, key=lambda phase: phase.total_bytes)


class ParameterShape(Frozen):
    """One parameter of a model."""

    shape: tuple[int, ...]
    element_bytes: int
    trained: bool


class ShardingUnit(Frozen):
    """Parameters that sharded training gathers together: those of one repeated block, or of the rest of the model."""

    name: str = Field(description="of the block in the model; empty for the rest")
    parameters: tuple[ParameterShape, ...]


class TraceResult(Frozen):
    """Memory of whole steps at several micro-batch sizes, without the device."""

    kind: Literal["trace"] = "trace"
    points: tuple[TracePoint, ...] = Field(default=(), description="ascending; empty where the model cannot be traced")
    untraceable: str = Field(default="", description="why the model cannot be traced; empty where it can")
    varies: bool = Field(default=False, description="the steps draw random numbers that may decide what runs")
    units: tuple[ShardingUnit, ...] = Field(default=(), description="what sharded training would gather, one by one")


class PeakMemory(Frozen):
    """The most memory that a run held. None where the device does not tell."""

    peak_bytes: int | None = None
    measured: MeasuredMemory | None = Field(default=None, description="what peak_bytes counts")
    peak_in_use_bytes: int | None = Field(
        default=None,
        description="most bytes of live tensors; on a CPU, most resident memory of the process above its baseline",
    )


class CapacityResult(PeakMemory):
    """Whether whole steps at a micro-batch size fit in memory."""

    kind: Literal["capacity"] = "capacity"
    micro_batch_size: int
    fits: bool
    steps: int = 0
    final_train_loss: float | None = Field(default=None, description="of the last step")
    baseline_bytes: int | None = None
    seconds_per_sample: float | None = None
    batch_shapes: tuple[tuple[int, ...], ...] | None = Field(
        default=None, description="of the largest batch's arrays, which ran here; None where all samples have one size"
    )
    available_bytes: int | None = Field(default=None, description="free on the device above the baseline")
    grown_bytes: int | None = Field(
        default=None,
        description="how far the peak rose from the second step to the last; None where batches are not drawn",
    )
    certain: bool = Field(default=True, description="False: it died for a reason that may or may not be memory")


class ThroughputResult(PeakMemory):
    """Tokens per second of one layout, alone on the device."""

    kind: Literal["throughput"] = "throughput"
    tokens_per_second: float = Field(description="median over the timed blocks")
    tokens_per_second_blocks: tuple[float, ...]
    step_seconds: float
    warmup_seconds: float = Field(description="time before the first timed block, compilation included")
    stable: bool | None = Field(
        default=None, description="whether the speed had stopped changing; None where it was not waited for"
    )
    other_load: float | None = Field(
        default=None, description="share of the processor, or of the card's time, that other programs used meanwhile"
    )
    issuing_share: float | None = Field(
        default=None, description="share of a step that the host takes to give the device its work; 1: launch-bound"
    )
    flops_per_token: float | None = Field(default=None, description="of training, per token or sample")
    peak_flops: float | None = Field(
        default=None, description="per second, of a large matrix product on this device in this precision"
    )
    clock_mhz: int | None = Field(default=None, description="of the card's multiprocessors at the end")


class WorkerTiming(PeakMemory):
    """Steps of one device with its share of the batch, while the others step too, without communication.

    Blocks of fresh samples and blocks of the same samples again take turns, so that the difference between the two is
    what preparing samples costs.
    """

    share: int = Field(description="samples of a step on this device")
    step_seconds: tuple[float, ...] = Field(description="of each block")
    held_step_seconds: tuple[float, ...] = Field(description="of each block on the same samples again")
    pass_seconds: float = Field(description="forward and backward pass of the last micro-batch, median")
    forward_seconds: float = Field(description="evaluation of the last micro-batch, median")


class WorkersResult(Frozen):
    """How fast each device is at its share."""

    kind: Literal["workers"] = "workers"
    workers: tuple[WorkerTiming, ...] = Field(description="in the order of ranks")
    other_load: float | None = Field(default=None, description="share of the processor that other programs used")


class WorkerDevice(Frozen):
    """A device, as its driver reports it."""

    name: str
    memory_bytes: int | None = Field(description="of its own: devices of one machine's memory have equal parts of it")


class SumTiming(Frozen):
    """Sums of one size over all devices."""

    size_bytes: int
    seconds: tuple[float, ...] = Field(description="of each sum, by the device of rank 0")


class AllReduceResult(Frozen):
    """How long sums over several devices take."""

    kind: Literal["all_reduce"] = "all_reduce"
    devices: tuple[WorkerDevice, ...] = Field(description="in the order of ranks")
    sums: tuple[SumTiming, ...] = Field(description="ascending in size")
    parts: tuple[int, ...] = Field(description="bytes of the sums of a step, in the order in which they begin")
    agreement_seconds: float = Field(description="in which the devices agree on a step's number of targets, median")


class NoGradientSamples(StrEnum):
    """Why the gradients of a run's micro-batches are not measured."""

    UNSUPPORTED = "unsupported"  # by the framework
    ONE_SAMPLE = "one_sample"  # a step has one sample
    ONE_MICRO_BATCH = "one_micro_batch"  # a step is one micro-batch that may not be split
    NO_NORM_LAYERS = "no_norm_layers"  # norm layers alone are measured, and there are none to train
    SAMPLES_NOT_SEPARATED = "samples_not_separated"  # no norm layer gives gradients of single samples
    NO_GRADIENT = "no_gradient"  # a micro-batch gave none
    PARTIAL_GRADIENTS = "partial_gradients"  # a parameter's gradient arrives several times in one backward pass
    SEVERAL_DEVICES = "several_devices"  # a step's micro-batches are on several devices
    SPARSE = "sparse"  # a parameter has sparse gradients
    SHARDED = "sharded"  # parameters are shards, whose gradients arrive summed over all processes


class TrainResult(PeakMemory):
    """Losses, speed and memory of a training run."""

    kind: Literal["train"] = "train"
    steps: int = Field(description="optimizer steps completed")
    tokens: int
    final_train_loss: float | None = Field(default=None, description="mean over the last tenth of the run")
    final_grad_norm: float | None = Field(
        default=None, description="global gradient norm before clipping, mean over the last tenth of the run"
    )
    val_loss: float | None = None
    val_error: float | None = Field(
        default=None, description="standard error of val_loss over the held-out samples, estimated from its batches"
    )
    val_draws_sd: float | None = Field(
        default=None,
        description="standard deviation of val_loss over the random numbers that the loss draws; None: it draws none",
    )
    best_val_loss: float | None = None
    val_curve: tuple[tuple[int, float], ...] = Field(default=(), description="(tokens, loss) at shared token counts")
    clipped_fraction: float | None = None
    skipped_steps: int = Field(default=0, description="steps left out because gradients overflowed in fp16")
    epochs: float = Field(default=0.0, description="passes over the training samples; above 1 data is repeated")
    undertrained: bool = False
    seconds: float = 0.0
    tokens_per_second: float | None = Field(
        default=None, description="of this run, which may have shared the device with others"
    )
    resumed: int = Field(default=0, description="how often this run resumed from a checkpoint")
    repaired_lines: int = Field(default=0, description="torn or unreadable metric rows dropped on resume")
    no_gradient_samples: tuple[NoGradientSamples, ...] = Field(
        default=(), description="why gradient norms that were asked for are not logged"
    )


def perplexity(loss: float | None) -> float | None:
    """exp of a mean cross-entropy in nats per token; None for no loss, infinite where it overflows."""
    if loss is None:
        return None
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


Result = Annotated[
    TaskInfo
    | CheckResult
    | TraceResult
    | CapacityResult
    | ThroughputResult
    | WorkersResult
    | AllReduceResult
    | TrainResult,
    Field(discriminator="kind"),
]


ProcessKind = Literal["new", "forked", "used"]
"""The process of a run: started for it; forked for it from one that had loaded the task and trained nothing; or one
that had executed other runs."""


class Record(Frozen):
    """The last file that a run writes. Its presence means that the run is finished, whatever its outcome."""

    schema_version: Literal[1] = 1
    run_id: str
    outcome: Outcome
    reason: str = Field(default="", description="one or two sentences; empty where completed")
    result: Result | None = None
    environment: Environment | None = None
    process: ProcessKind | None = Field(default=None, description="None where it died before it could say so")
    pairing: Pairing = Field(default=Pairing.NONE, description="of a training run's samples with those of others")
    attempts: int = 1


RECORD: TypeAdapter[Record] = TypeAdapter(Record)


class GradientSample(Frozen):
    """Gradient norms of the micro-batches of one step, before clipping. Each gradient is a mean over its samples."""

    parameters: Literal["all", "norm_layers"] = Field(
        default="all", description="which parameters all norms here are taken over"
    )
    micro_batch_sizes: tuple[float, ...] = Field(description="in samples; shares of the step where targets differ")
    squared_norms: tuple[float, ...] = Field(description="squared 2-norm of each micro-batch's gradient")
    mean_squared_norm: float = Field(description="squared 2-norm of their weighted mean, which is the step's gradient")
    norm_layer_squared_norms: tuple[float, ...] | None = Field(default=None, description="over norm layers alone")
    norm_layer_mean_squared_norm: float | None = None
    norm_layer_samples: tuple[float, float] | None = Field(
        default=None,
        description="over norm layers: the squared 2-norm of a single sample's gradient, a mean over the samples of "
        "the step, and that of their mean gradient",
    )
    spread: float | None = Field(default=None, description="Σᵢ of each parameter's deviation of one sample's gradient")
    absolute_mean: float | None = Field(default=None, description="1-norm of the step's gradient")
    agreement: float | None = Field(
        default=None, description="Σᵢ sign(aᵢ)·cᵢ of all micro-batches but the last, a, and the last, c"
    )


class MetricRow(Frozen):
    """One row of metrics.jsonl: training means since the previous row, an evaluation (`val_loss`), `diagnostics`, or
    norms of the micro-batches' `gradients`."""

    step: int
    tokens: int
    train_loss: float | None = None
    train_loss_max: float | None = Field(
        default=None, description="largest of the single steps that train_loss averages"
    )
    val_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    clipped_fraction: float | None = None
    skipped_steps: int | None = Field(default=None, description="steps left out since the previous row; None for none")
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    in_use_bytes: int | None = Field(default=None, description="now; counts what peak_in_use_bytes counts")
    reserved_bytes: int | None = Field(default=None, description="now; None without an allocator that tells")
    diagnostics: dict[str, float] | None = Field(
        default=None, description="of this one step; names are `quantity/part`, e.g. grad_norm/blocks.0"
    )
    gradients: GradientSample | None = None
