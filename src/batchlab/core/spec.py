"""One immutable, JSON-able unit of work for a worker process: a tagged union, discriminated by `kind`.

A spec holds everything that affects its numbers, so its hash (`run_id`) identifies a run: equal specs are the same run,
in any study, on any engine.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, TypeAdapter

from batchlab.core.batch import BatchLayout, Frozen, Unit
from batchlab.core.command import Command
from batchlab.core.experiment import (
    CompileMode,
    DataConfig,
    MemoryOptimization,
    OptimizerConfig,
    Precision,
    ScheduleConfig,
    TaskReference,
)
from batchlab.core.integration import IntegrationName
from batchlab.core.metric import Metric


class Workload(Frozen):
    """What is trained: the task, its data and the digests of both."""

    task: TaskReference
    unit: Unit = Unit.TOKENS
    sequence_length: PositiveInt = 1
    model: dict[str, int | float | str | bool] = Field(default_factory=dict)
    data: DataConfig = DataConfig()
    framework: str | None = Field(default=None, description="what computes; known once the task was inspected")
    integration: IntegrationName | None = Field(
        default=None, description="what trains it where batchlab's own loop does not; known once it was inspected"
    )
    command: Command | None = Field(default=None, description="the person's own script")
    metric: Metric | None = Field(default=None, description="what is judged on held-out data; the loss where None")
    data_digest: str = Field(default="", description="sha256 over the content of training and held-out data")
    code_digest: str = Field(default="", description="sha256 over the person's task file and the modules it imports")


class DeviceSettings(Frozen):
    """Where a spec runs. `threads` and `precision` affect the last bits of a result, so they belong to the spec."""

    name: str = Field(
        default="cpu",
        description="resolved, never auto: cpu, cuda (any card), cuda:1 (that card), mps, gpu, tpu, simulated",
    )
    precision: Precision = "fp32"
    compile: CompileMode = "off"
    threads: PositiveInt = 1
    memory_limit: PositiveInt | None = Field(default=None, description="bytes above the warmed-up baseline")
    memory_optimizations: tuple[MemoryOptimization, ...] = Field(
        default=(), description="ways of needing less memory, besides precision"
    )


class OptimizerSettings(Frozen):
    """The optimizer for one batch size: the experiment's settings, and the ratio of this size to the reference."""

    config: OptimizerConfig = OptimizerConfig()
    batch_ratio: PositiveFloat = Field(default=1.0, description="global batch size ÷ reference batch size")
    rate_ratio: PositiveFloat = Field(
        default=1.0, description="learning rate ÷ reference learning rate, where weight decay follows it"
    )


class GradientSampling(Frozen):
    """At which steps of a run the norms of its micro-batches' gradients are logged."""

    every: PositiveInt = Field(description="steps from one sampled step to the next")
    parameters: Literal["all", "norm_layers"] = "all"
    split_lone: bool = Field(default=False, description="split a single micro-batch in two at the sampled steps")


class InspectSpec(Frozen):
    """Load the task and describe it: unit, lengths, digests, parameter count. Trains nothing."""

    kind: Literal["inspect"] = "inspect"
    workload: Workload
    optimizer: OptimizerSettings = OptimizerSettings()
    device: DeviceSettings = DeviceSettings()


class CheckSpec(Frozen):
    """Test the person's own code before a sweep over it (runs/check.py)."""

    kind: Literal["check"] = "check"
    workload: Workload
    scope: Literal["training", "memory"] = Field(
        default="training", description="memory: only what decides which batches fit"
    )
    largest_batch: PositiveInt | None = Field(default=None, description="largest global batch size of the sweep")
    optimizer: OptimizerSettings = OptimizerSettings()
    device: DeviceSettings = DeviceSettings()


class CapacitySpec(Frozen):
    """Run `steps` whole optimizer steps and one evaluation at a micro-batch size, in a process of its own."""

    kind: Literal["capacity"] = "capacity"
    workload: Workload
    micro_batch_size: PositiveInt
    grad_accum_steps: PositiveInt = Field(default=2, description="2: gradients stay allocated during the second pass")
    data_parallel_size: PositiveInt = Field(default=1, description="devices that do so together, and add up gradients")
    steps: PositiveInt = 3
    whole: bool = Field(
        default=True, description="False: the first step only creates the optimizer's state, from one micro-batch"
    )
    evaluation_batch_size: PositiveInt = 1
    new_process: bool = Field(default=False, description="started for it, not forked from one that loaded the task")
    draws: bool = Field(default=False, description="after the largest batch by content, every step draws another")
    gradients: GradientSampling | None = Field(default=None, description="steps that do what sampled training steps do")
    snapshot: Literal["light", "full"] | None = Field(
        default=None, description="diagnostics that are also taken, of the step before the last"
    )
    optimizer: OptimizerSettings = OptimizerSettings()
    device: DeviceSettings = DeviceSettings()


class TraceSpec(Frozen):
    """Trace the memory of whole steps at several micro-batch sizes, without the device and without real tensors."""

    kind: Literal["trace"] = "trace"
    workload: Workload
    micro_batch_sizes: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    grad_accum_steps: PositiveInt = 2
    evaluation_batch_size: PositiveInt | None = Field(default=None, description="None: evaluate at each traced size")
    draws: NonNegativeInt = Field(default=0, description="batches to run at each size on real values; 0: trace shapes")
    optimizer: OptimizerSettings = OptimizerSettings()
    device: DeviceSettings = DeviceSettings()


class ThroughputSpec(Frozen):
    """Time whole optimizer steps of one layout, alone on the device, after warm-up."""

    kind: Literal["throughput"] = "throughput"
    workload: Workload
    layout: BatchLayout
    repeats: PositiveInt = Field(default=5, description="timed blocks; the median and spread are over these")
    block_seconds: PositiveFloat = Field(default=0.3, description="least length of one block")
    optimizer: OptimizerSettings = OptimizerSettings()
    device: DeviceSettings = DeviceSettings()


class WorkersSpec(Frozen):
    """Time whole steps of every device with its share of the batch: all at once, and without communication."""

    kind: Literal["workers"] = "workers"
    workload: Workload
    layout: BatchLayout
    repeats: PositiveInt = Field(default=5, description="timed blocks; the median and spread are over these")
    block_seconds: PositiveFloat = Field(default=0.3, description="least length of one block")
    optimizer: OptimizerSettings = OptimizerSettings()
    device: DeviceSettings = DeviceSettings()


class AllReduceSpec(Frozen):
    """Time sums over several devices, from small ones to one of as many bytes as the model's gradients."""

    kind: Literal["all_reduce"] = "all_reduce"
    workload: Workload
    data_parallel_size: PositiveInt
    repeats: PositiveInt = Field(default=9, description="sums of each size; the median is over these")
    optimizer: OptimizerSettings = OptimizerSettings()
    device: DeviceSettings = DeviceSettings()


class Diagnostics(Frozen):
    """Diagnostic snapshots of a training run, and how often. Taking them changes no bit of the training."""

    level: Literal["light", "full"] = "light"
    interval: PositiveInt = Field(description="tokens between snapshots; a multiple of tokens_per_step")


class TrainSpec(Frozen):
    """Train for exactly `token_budget` tokens at one global batch size, learning rate and seed: from scratch, or from
    where another run of the study ended."""

    kind: Literal["train"] = "train"
    workload: Workload
    layout: BatchLayout
    learning_rate: PositiveFloat
    seed: NonNegativeInt = 0
    token_budget: PositiveInt = Field(description="a multiple of tokens_per_step")
    schedule: ScheduleConfig = ScheduleConfig()
    optimizer: OptimizerSettings = OptimizerSettings()
    evaluation_interval: PositiveInt = Field(description="tokens between evaluations; a multiple of tokens_per_step")
    evaluation_samples: PositiveInt = 256
    evaluation_batch_size: PositiveInt = 32
    log_points: PositiveInt = Field(default=200, description="about this many rows of training metrics")
    checkpoint_seconds: NonNegativeFloat = Field(
        default=30.0,
        description="least time between two checkpoints, which also take no more than a twentieth of a run",
    )
    diagnostics: Diagnostics | None = None
    gradients: GradientSampling | None = None
    start: str | None = Field(
        default=None,
        pattern=r"^train-[A-Za-z0-9.+-]+$",
        description="run id to begin from: its parameters, optimizer and random state as they were at its end",
    )
    repeatable: bool = Field(default=False, description="of a person's own trainer: the check found it to repeat")
    keep_end: bool = Field(default=False, description="keep the state at the end, for runs that start from it")
    device: DeviceSettings = DeviceSettings()

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.token_budget // self.layout.tokens_per_step

    @property
    def warmup_tokens(self) -> float:
        """Tokens over which the learning rate rises from zero to its peak."""
        return self.schedule.warmup_tokens(self.token_budget, self.layout.tokens_per_step)

    @property
    def undertrained(self) -> bool:
        """Too few updates to judge the batch size by: under 50 steps, or a warm-up of under 5 steps."""
        warmup_steps = self.warmup_tokens / self.layout.tokens_per_step
        return self.steps < MIN_STEPS or 0 < warmup_steps < MIN_WARMUP_STEPS


LARGEST_EVALUATION_BATCH = 64
"""Held-out samples of a batch, at most; all runs of a study have the same."""

MIN_STEPS = 50
MIN_WARMUP_STEPS = 5

Spec = Annotated[
    InspectSpec | CheckSpec | TraceSpec | CapacitySpec | ThroughputSpec | WorkersSpec | AllReduceSpec | TrainSpec,
    Field(discriminator="kind"),
]
SPEC: TypeAdapter[Spec] = TypeAdapter(Spec)


def devices_of(spec: Spec) -> int:
    """Data-parallel devices that a spec runs on."""
    match spec:
        case TrainSpec() | ThroughputSpec() | WorkersSpec():
            return spec.layout.data_parallel_size
        case CapacitySpec() | AllReduceSpec():
            return spec.data_parallel_size
        case _:
            return 1


def run_id(spec: Spec) -> str:
    """A readable prefix and a hash of everything in the spec: `train-b32-lr0.001-s0-5f0c2a91d3`."""
    content = {key: value for key, value in spec.model_dump(mode="json").items() if key not in _NOT_IDENTITY}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:10]
    match spec:
        case TrainSpec():
            label = f"-b{spec.layout.global_batch_size}-lr{spec.learning_rate:g}-s{spec.seed}"
        case ThroughputSpec() | WorkersSpec():
            label = f"-b{spec.layout.global_batch_size}"
        case CapacitySpec():
            label = f"-m{spec.micro_batch_size}"
        case _:
            label = ""
    return f"{spec.kind.replace('_', '-')}{label}-{digest}"


# How often a run is saved, logged or diagnosed changes no result, so it is no part of the identity.
_NOT_IDENTITY = {"log_points", "checkpoint_seconds", "diagnostics"}
