"""training_plan.json: what to train with, each number with where it came from.

A plan states only what was measured, or what follows from it by a rule that it names.
"""

from __future__ import annotations

import json
import math
from typing import Literal, Self

from pydantic import Field, model_validator

from batchlab.core.batch import BatchLayout, Frozen, Unit, divide
from batchlab.core.experiment import AcrossBatch, CompileMode, Precision, ScheduleConfig
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Workload
from batchlab.plan.hardware import HardwareCalibration, StepTarget
from batchlab.plan.safeguards import ChecklistItem, CheckpointStrategy, VerificationStep
from batchlab.words.plan import confirmation_note, extrapolation_note, group_note, paste_title

Status = Literal["measured", "computed", "extrapolated", "given"]


class Provenance(Frozen):
    """Where a number comes from. `n` repetitions stand behind a measured one, a rule behind an extrapolated one."""

    status: Status
    source: str = Field(description="the runs, or who published the rule, and on what")
    n: int | None = None
    rule: str = Field(default="", description="how the number was extrapolated")
    range: str = Field(default="", description="where the rule was shown to hold")
    low: float | None = Field(default=None, description="95 % interval of a number that was extrapolated")
    high: float | None = None


class MadeFrom(Frozen):
    study: str
    run_ids: tuple[str, ...] = Field(description="the training runs behind the batch size and learning rate")
    batchlab: str = ""
    data_digest: str = ""


class OptimizerPlan(Frozen):
    """The optimizer as it was at this batch size. Unset settings do not apply; a task's own are in `groups`."""

    name: Literal["adamw", "adam", "sgd", "task"]
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    decay_timescale: float | None = Field(
        default=None, description="adamw: batch ÷ (learning rate × weight decay × budget), as a share of the run"
    )
    grad_clip: float | None = None
    across_batch: AcrossBatch
    groups: tuple[OptimizerGroup, ...] = Field(
        default=(), description="task: its parameter groups, each at learning_rate_ratio × learning_rate"
    )


class BatchConfiguration(Frozen):
    """How to train. Warm-up and budget in tokens (samples where the unit is samples), and in steps of this batch."""

    micro_batch_size: int
    grad_accum_steps: int
    data_parallel_size: int
    global_batch_size: int
    sequence_length: int
    unit: Unit
    tokens_per_step: int
    learning_rate: float
    warmup_tokens: float
    warmup_steps: int
    warmup_epochs: float | None = Field(
        default=None, description="warm-up in passes over training_samples; None where their number is not known"
    )
    training_samples: int | None = Field(default=None, description="of one epoch")
    token_budget: int
    steps: int
    schedule: ScheduleConfig
    optimizer: OptimizerPlan
    precision: Precision
    compile: CompileMode

    per_gpu_batch_size: int = Field(description="micro_batch_size, as training coordinators spell it")
    total_batch_size: int = Field(description="global_batch_size, in samples, as training coordinators spell it")
    gradient_accumulation_steps: int = Field(description="grad_accum_steps, as training coordinators spell it")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """A plan edited by hand must not say two things."""
        pairs = (
            ("micro_batch_size", "per_gpu_batch_size"),
            ("global_batch_size", "total_batch_size"),
            ("grad_accum_steps", "gradient_accumulation_steps"),
        )
        for name, spelling in pairs:
            if getattr(self, name) != getattr(self, spelling):
                raise ValueError(
                    f"{name} is {getattr(self, name)} but {spelling} is {getattr(self, spelling)}; "
                    "they are two spellings of one number, so change both"
                )
        if self.layout.grad_accum_steps != self.grad_accum_steps:
            raise ValueError(
                f"grad_accum_steps is {self.grad_accum_steps}, but this batch in micro-batches of "
                f"{self.micro_batch_size} takes {self.layout.grad_accum_steps}"
            )
        if self.tokens_per_step != self.layout.tokens_per_step:
            raise ValueError(
                f"tokens_per_step is {self.tokens_per_step:,}, but {self.global_batch_size:,} × "
                f"{self.sequence_length:,} are {self.layout.tokens_per_step:,}"
            )
        if self.steps < 1 or self.steps != self.token_budget // self.tokens_per_step:
            raise ValueError(
                f"steps is {self.steps:,}, but token_budget {self.token_budget:,} makes "
                f"{self.token_budget // self.tokens_per_step:,} steps of {self.tokens_per_step:,}"
            )
        if self.warmup_steps != warmup_steps(self.warmup_tokens, self.tokens_per_step):
            raise ValueError(
                f"warmup_steps is {self.warmup_steps:,}, but warmup_tokens {self.warmup_tokens:,.0f} are "
                f"{warmup_steps(self.warmup_tokens, self.tokens_per_step):,} steps of {self.tokens_per_step:,}"
            )
        epochs = warmup_epochs(self.warmup_tokens, self.training_samples, self.sequence_length)
        if (self.warmup_epochs is None) != (epochs is None) or not math.isclose(
            self.warmup_epochs or 0.0, epochs or 0.0, rel_tol=1e-6
        ):
            raise ValueError(
                f"warmup_epochs is {self.warmup_epochs}, but warmup_tokens {self.warmup_tokens:,.0f} of "
                f"{self.training_samples} samples of {self.sequence_length:,} are {epochs}"
            )
        return self

    @property
    def layout(self) -> BatchLayout:
        return BatchLayout(
            global_batch_size=self.global_batch_size,
            micro_batch_size=self.micro_batch_size,
            data_parallel_size=self.data_parallel_size,
            sequence_length=self.sequence_length,
        )


def warmup_steps(warmup_tokens: float, tokens_per_step: int) -> int:
    """Steps that have any of the warm-up."""
    return math.ceil(round(warmup_tokens / tokens_per_step, 9))


def warmup_epochs(warmup_tokens: float, training_samples: int | None, sequence_length: int) -> float | None:
    """Passes over the training data; None where its size is not known."""
    return warmup_tokens / (training_samples * sequence_length) if training_samples else None


class PerformanceTargets(Frozen):
    """What a run of the plan should reach: what the study saw with these settings, or what follows from it."""

    val_loss: float | None = None
    low: float | None = Field(default=None, description="95 % interval of val_loss")
    high: float | None = None
    n: int = Field(default=0, description="runs behind val_loss")
    tokens_per_second: float | None = Field(default=None, description="of all devices together")
    scaling_efficiency: float | None = Field(
        default=None, description="speed ÷ that of as many devices which do not communicate, where it was measured"
    )
    step: StepTarget | None = Field(default=None, description="None where batchlab calibrate did not time the devices")
    hours: float | None = Field(default=None, description="without evaluation and start-up")
    peak_bytes: int | None = Field(default=None, description="of one device in training, where it was measured")


class DistributedConfig(Frozen):
    """Nodes, devices of each, and the command lines that start the plan there."""

    nodes: int = 1
    devices_per_node: int = 1
    launch: dict[str, str] = Field(
        default_factory=dict, description="launcher → command; empty where a person's own program trains the task"
    )


class PlannedTask(Frozen):
    """What `batchlab train` needs besides the configuration: the task as the study saw it, and how it was evaluated."""

    workload: Workload
    optimizer: OptimizerSettings = Field(description="of the study at this batch; applies to a task's own optimizer")
    device: DeviceSettings
    framework: str = Field(default="", description="version with which the study measured")
    parameter_count: int | None = None
    evaluation_points: int
    evaluation_samples: int
    evaluation_batch_size: int


SCHEMA_VERSION = 1

EQUAL = 1e-9
"""Shares of a batch that differ by less are the same."""


class TrainingPlan(Frozen):
    """The file other programs read. `TrainingPlan.model_json_schema()` describes it."""

    schema_version: Literal[1] = 1
    made_from: MadeFrom
    batch_configuration: BatchConfiguration
    command: str = Field(default="", description="of a person's own script, with this configuration filled in")
    hardware_calibration: HardwareCalibration
    performance_targets: PerformanceTargets
    task: PlannedTask | None = Field(
        default=None, description="None where a person's own program trains it, or the model is another one"
    )
    distributed_config: DistributedConfig = DistributedConfig()
    pre_flight_checklist: tuple[ChecklistItem, ...] = ()
    verification_steps: tuple[VerificationStep, ...] = Field(default=(), description="in the order of the run")
    checkpoint_strategy: CheckpointStrategy | None = Field(
        default=None, description="None where batchlab does not train the plan"
    )
    provenance: dict[str, Provenance]
    unknown: tuple[str, ...] = Field(description="what the study does not answer")
    warnings: tuple[str, ...] = Field(
        default=(), description="estimators by which this batch is above the critical one; a layout that did not fit"
    )
    confirm: str = Field(default="", description="the cheapest runs that would confirm what was extrapolated")

    @model_validator(mode="after")
    def _one_layout(self) -> Self:
        """Devices are counted in three places."""
        devices, spread = self.batch_configuration.data_parallel_size, self.distributed_config
        if spread.nodes * spread.devices_per_node != devices:
            raise ValueError(
                f"data_parallel_size is {devices}, but distributed_config has {spread.nodes} × "
                f"{spread.devices_per_node} devices"
            )
        shares = self.hardware_calibration.workload_distribution.values()
        if len(shares) != devices or not math.isclose(sum(shares), 1.0, rel_tol=1e-6):
            raise ValueError(
                f"workload_distribution has {len(shares)} shares with the sum {sum(shares):.6g}; it needs one of each "
                f"of the {devices} devices, with the sum 1"
            )
        return self

    @property
    def layout(self) -> BatchLayout:
        """The global batch as workload_distribution spreads it, which equal workers share equally."""
        equal, weights = self.batch_configuration.layout, [*self.hardware_calibration.workload_distribution.values()]
        if max(weights) - min(weights) < EQUAL:
            return equal
        return BatchLayout(**equal.model_dump(exclude={"shares"}), shares=divide(equal.global_batch_size, weights))

    @property
    def notes(self) -> tuple[str, ...]:
        """A line per extrapolated number, and what would confirm them; empty where everything was measured."""
        lines = [
            extrapolation_note(
                name, rule=entry.rule, source=entry.source, valid=entry.range, low=entry.low, high=entry.high
            )
            for name, entry in self.provenance.items()
            if entry.rule
        ]
        return (*lines, confirmation_note(self.confirm)) if self.confirm else tuple(lines)

    @property
    def paste_block(self) -> str:
        """The settings as lines that are TOML and Python at once."""
        return paste_block(self)


def paste_block(plan: TrainingPlan) -> str:
    """The settings, one per line; valid as TOML and as Python."""
    c = plan.batch_configuration
    title = paste_title(plan.made_from.study, c.global_batch_size, c.unit, c.sequence_length)
    lines = [f"# {line}" for line in (title, *plan.notes, *map(group_note, c.optimizer.groups))]
    if plan.command:
        lines.append(f"command = {literal(plan.command)}")
    own = c.schedule.kind == "task"  # what only a person's own trainer knows is left out
    values: dict[str, int | float | str | None] = {
        "micro_batch_size": c.micro_batch_size,
        "grad_accum_steps": c.grad_accum_steps,
        "data_parallel_size": c.data_parallel_size,
        "sequence_length": c.sequence_length if c.unit is Unit.TOKENS else None,
        "learning_rate": c.learning_rate,
        "schedule": None if own else c.schedule.kind,
        "warmup_steps": c.warmup_steps or (None if own else 0),
        "steps": c.steps,
        "optimizer": None if own else c.optimizer.name,
        "beta1": c.optimizer.beta1,
        "beta2": c.optimizer.beta2,
        "momentum": c.optimizer.momentum,
        "weight_decay": c.optimizer.weight_decay,
        "grad_clip": c.optimizer.grad_clip,
        "precision": None if own else c.precision,
    }
    return "\n".join(lines + [f"{key} = {literal(value)}" for key, value in values.items() if value is not None])


def literal(value: int | float | str) -> str:
    """A value as TOML and Python both write it; six digits."""
    if isinstance(value, float):
        short = f"{value:.6g}"
        return short if any(mark in short for mark in ".e") else f"{short}.0"
    return json.dumps(value)
