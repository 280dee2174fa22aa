"""What came of a spec: outcome, numbers, environment. Bytes, seconds and nats throughout.

Running out of memory, diverging, crashing or being killed are outcomes here, never exceptions that end a study.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from batchlab.core.batch import Frozen, Unit
from batchlab.core.check import CheckResult


class Outcome(StrEnum):
    """How a run ended. `reason` in the record says it in a sentence."""

    COMPLETED = "completed"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"  # the task raised an error, or its process died for a reason that is not memory

    @property
    def word(self) -> str:
        return self.value.replace("_", " ")


class Environment(Frozen):
    """What the numbers were made with; records from different environments are a finding, not silently compared."""

    batchlab: str
    python: str
    numpy: str
    framework: str = Field(default="", description="e.g. 'torch 2.13.0+cpu'")
    platform: str
    processor: str = ""
    instruction_set: str = Field(default="", description="the CPU capability the framework dispatched to")
    device: str = Field(default="cpu", description="device name as its driver says it")
    device_memory_bytes: int | None = None
    cores: int = 1
    threads: int = 1


class TaskInfo(Frozen):
    kind: Literal["inspect"] = "inspect"
    unit: Unit
    sequence_length: int
    train_samples: int
    valid_samples: int
    vocabulary: int | None = None
    parameter_count: int
    optimizer_family: Literal["adam", "sgd", "other"]
    own_optimizer: bool = False
    data_source: str = Field(description="what the data is, in words")
    data_digest: str
    data_files: dict[str, str] = Field(default_factory=dict, description="path → size and modification time")
    code: dict[str, str] = Field(default_factory=dict, description="path → sha256 of the person's own source files")
    device: str = Field(description="the resolved device name")
    device_memory_bytes: int | None = Field(default=None, description="all of the device's memory")


Phase = Literal["forward", "backward", "optimizer", "evaluation"]


class PhasePeak(Frozen):
    """The largest moment of one phase of a step, in bytes of live storage, by what holds them."""

    phase: Phase
    parameter_bytes: int = Field(description="parameters and buffers")
    gradient_bytes: int
    optimizer_bytes: int = Field(description="optimizer state")
    activation_bytes: int = Field(description="kept from the forward for the backward pass, the batch itself included")
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
    """What one micro-batch size needs, without what kernels allocate inside themselves."""

    micro_batch_size: int
    phases: tuple[PhasePeak, ...]
    reserved_bytes: int | None = Field(
        default=None, description="the CUDA caching allocator replayed over the same steps"
    )

    @property
    def peak(self) -> PhasePeak:
        return max(self.phases, key=lambda phase: phase.total_bytes)


class TraceResult(Frozen):
    kind: Literal["trace"] = "trace"
    points: tuple[TracePoint, ...] = Field(default=(), description="ascending; empty where the model cannot be traced")
    untraceable: str = Field(default="", description="why the model cannot be traced, one sentence; empty: it can")


MeasuredMemory = Literal["allocated", "reserved", "process"]
"""What a number of bytes counts: live tensors (allocated), the segments an allocator holds (reserved), or the process
above its warmed-up baseline (process). It is what a memory limit on the device bounds."""


class PeakMemory(Frozen):
    """The most memory that a run held. None where the device does not tell."""

    peak_bytes: int | None = None
    measured: MeasuredMemory | None = Field(default=None, description="what peak_bytes counts")
    peak_in_use_bytes: int | None = Field(
        default=None,
        description="most bytes of live tensors; on a CPU, most resident memory of the process above its baseline",
    )


class CapacityResult(PeakMemory):
    kind: Literal["capacity"] = "capacity"
    micro_batch_size: int
    fits: bool
    steps: int = 0
    final_train_loss: float | None = Field(default=None, description="of the last step")
    baseline_bytes: int | None = None
    seconds_per_sample: float | None = None
    batch_shapes: tuple[tuple[int, ...], ...] | None = Field(
        default=None, description="of the worst batch's arrays, which ran here; None where samples are of one size"
    )
    available_bytes: int | None = Field(default=None, description="what the device had left above the baseline")
    certain: bool = Field(default=True, description="False: died in a way that memory and other things can explain")


class ThroughputResult(PeakMemory):
    kind: Literal["throughput"] = "throughput"
    tokens_per_second: float = Field(description="median over the timed blocks")
    tokens_per_second_blocks: tuple[float, ...]
    step_seconds: float
    warmup_seconds: float = Field(description="time before the first timed block, compilation included")
    other_load: float | None = Field(default=None, description="share of the processor other programs used meanwhile")


class NoGradientSamples(StrEnum):
    """Why the gradients of a run's micro-batches are not measured."""

    UNSUPPORTED = "unsupported"  # by the framework
    ONE_SAMPLE = "one_sample"  # a step has one sample
    ONE_MICRO_BATCH = "one_micro_batch"  # a step is one micro-batch that may not be split
    NO_NORM_LAYERS = "no_norm_layers"  # norm layers alone are measured, and there are none to train
    SAMPLES_NOT_SEPARATED = "samples_not_separated"  # no norm layer gives gradients of single samples
    NO_GRADIENT = "no_gradient"  # a micro-batch gave none
    IN_PIECES = "in_pieces"  # a parameter's gradient arrives several times in one backward pass
    SPARSE = "sparse"  # a parameter has sparse gradients


class TrainResult(PeakMemory):
    kind: Literal["train"] = "train"
    steps: int = Field(description="optimizer steps done")
    tokens: int
    final_train_loss: float | None = Field(default=None, description="mean over the last tenth of the run")
    final_grad_norm: float | None = Field(
        default=None, description="global gradient norm before clipping, mean over the last tenth of the run"
    )
    val_loss: float | None = None
    val_error: float | None = Field(
        default=None, description="standard error of val_loss over the held-out samples, from its batches"
    )
    best_val_loss: float | None = None
    val_curve: tuple[tuple[int, float], ...] = Field(default=(), description="(tokens, loss) at shared token counts")
    clipped_fraction: float | None = None
    epochs: float = Field(default=0.0, description="passes over the training samples; above 1 data is repeated")
    undertrained: bool = False
    seconds: float = 0.0
    tokens_per_second: float | None = Field(default=None, description="of this run, co-scheduled or not")
    resumed: int = Field(default=0, description="times this run went on from a checkpoint")
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
    TaskInfo | CheckResult | TraceResult | CapacityResult | ThroughputResult | TrainResult,
    Field(discriminator="kind"),
]


class Record(Frozen):
    """The last file a run writes. Its presence means the run is finished, whatever its outcome."""

    schema_version: Literal[1] = 1
    run_id: str
    outcome: Outcome
    reason: str = Field(default="", description="one sentence for a person; empty when completed")
    result: Result | None = None
    environment: Environment | None = None
    pairing: Literal["verified", "declared", "none"] = "none"
    attempts: int = 1


RECORD: TypeAdapter[Record] = TypeAdapter(Record)


class GradientSample(Frozen):
    """Norms of the gradients of one step's micro-batches, each gradient a mean over its samples, before clipping."""

    parameters: Literal["all", "norm_layers"] = Field(default="all", description="what all norms here are taken over")
    micro_batch_sizes: tuple[float, ...] = Field(description="in samples; shares of the step where targets differ")
    squared_norms: tuple[float, ...] = Field(description="squared 2-norm of each micro-batch's gradient")
    mean_squared_norm: float = Field(description="squared 2-norm of their weighted mean, the step's gradient")
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
    what the micro-batches' `gradients` were like."""

    step: int
    tokens: int
    train_loss: float | None = None
    train_loss_max: float | None = Field(default=None, description="of the single steps that train_loss averages")
    val_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    clipped_fraction: float | None = None
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    in_use_bytes: int | None = Field(default=None, description="now; counts what peak_in_use_bytes counts")
    reserved_bytes: int | None = Field(default=None, description="now; None without an allocator that tells")
    diagnostics: dict[str, float] | None = Field(
        default=None, description="of this one step; names are `quantity/part`, e.g. grad_norm/blocks.0"
    )
    gradients: GradientSample | None = None
