"""training_plan.json: what to train with, in the words of several trainers, each number with where it came from.

A plan states only what was measured, or what follows from it by a rule that it names. The global batch and the learning
rate stay as measured on any number of devices: splitting a batch changes no gradient, scaling it would.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal, get_args

import tomli_w
from pydantic import Field, computed_field

from batchlab.analysis.findings import BatchRow, Findings, ThroughputFinding
from batchlab.analysis.wording import items_of, say_count, say_list, say_rate
from batchlab.batch import BatchLayout, Frozen, Unit, lay_out
from batchlab.errors import InputError
from batchlab.experiment import AcrossBatch, ScheduleConfig
from batchlab.scaling import beta2_at, weight_decay_at

Format = Literal["json", "hf", "torchtitan", "nanochat", "torchrun"]
Status = Literal["measured", "computed", "extrapolated", "given"]


class Provenance(Frozen):
    """Where a number comes from. `n` repetitions stand behind a measured one."""

    status: Status
    source: str = Field(description="the runs or the rule")
    n: int | None = None


class MadeFrom(Frozen):
    study: str
    run_ids: tuple[str, ...] = Field(description="the training runs behind the batch size and learning rate")
    batchlab: str = ""
    data_digest: str = ""


class OptimizerPlan(Frozen):
    """The optimizer as it was at this batch size; a person's own keeps its settings, unset ones do not apply."""

    name: Literal["adamw", "sgd", "task"]
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    grad_clip: float | None = None
    across_batch: AcrossBatch


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
    token_budget: int
    steps: int
    schedule: ScheduleConfig
    optimizer: OptimizerPlan
    precision: Literal["fp32", "tf32", "bf16"]
    compile: bool

    @computed_field(description="micro_batch_size, as training coordinators spell it")  # type: ignore[prop-decorator]
    @property
    def per_gpu_batch_size(self) -> int:
        return self.micro_batch_size

    @computed_field(description="global_batch_size in samples, as training coordinators spell it")  # type: ignore[prop-decorator]
    @property
    def total_batch_size(self) -> int:
        return self.global_batch_size

    @computed_field(description="grad_accum_steps, as training coordinators spell it")  # type: ignore[prop-decorator]
    @property
    def gradient_accumulation_steps(self) -> int:
        return self.grad_accum_steps

    @property
    def layout(self) -> BatchLayout:
        return BatchLayout(
            global_batch_size=self.global_batch_size,
            micro_batch_size=self.micro_batch_size,
            data_parallel_size=self.data_parallel_size,
            sequence_length=self.sequence_length,
        )


class HardwareCalibration(Frozen):
    """tokens/s of each worker (samples/s where the unit is samples) and the share of every global batch it takes."""

    measured_performance: dict[str, float] = Field(description="worker → tokens/s; empty where nothing was measured")
    workload_distribution: dict[str, float]


class Expectation(Frozen):
    """What the study saw with these settings, and how long it takes at the speed above."""

    validation_loss: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    hours: float | None = None


class TrainingPlan(Frozen):
    """The file other programs read. `TrainingPlan.model_json_schema(mode="serialization")` describes it."""

    schema_version: Literal[1] = 1
    made_from: MadeFrom
    batch_configuration: BatchConfiguration
    hardware_calibration: HardwareCalibration
    expectation: Expectation
    provenance: dict[str, Provenance]
    not_known: tuple[str, ...]

    @property
    def paste_block(self) -> str:
        """The settings as lines that are TOML and Python at once."""
        return paste_block(self)


def make_plan(findings: Findings, devices: int = 1, global_batch_size: int | None = None) -> TrainingPlan:
    """The plan for `devices` data-parallel devices like the measured one, at the recommended batch or another measured.

    InputError where the study has no answer, the batch was not measured, or it cannot be shared by that many devices.
    """
    row = _row(findings, global_batch_size)
    assert row.best is not None and findings.token_budget is not None
    layout = _layout(findings, row, devices)
    experiment = findings.experiment
    warmup_tokens = experiment.schedule.warmup_fraction * findings.token_budget
    configuration = BatchConfiguration(
        micro_batch_size=layout.micro_batch_size,
        grad_accum_steps=layout.grad_accum_steps,
        data_parallel_size=layout.data_parallel_size,
        global_batch_size=layout.global_batch_size,
        sequence_length=layout.sequence_length,
        unit=experiment.unit,
        tokens_per_step=layout.tokens_per_step,
        learning_rate=row.best.learning_rate,
        warmup_tokens=warmup_tokens,
        warmup_steps=math.ceil(round(warmup_tokens / layout.tokens_per_step, 9)),
        token_budget=findings.token_budget,
        steps=findings.token_budget // layout.tokens_per_step,
        schedule=experiment.schedule,
        optimizer=_optimizer(findings, layout.global_batch_size),
        precision=experiment.device.precision,
        compile=experiment.device.compile,
    )
    speed, speed_from = _speed(findings.throughput, layout)
    workers = [f"worker-{rank}" for rank in range(devices)]
    loss = row.loss
    return TrainingPlan(
        made_from=MadeFrom(
            study=experiment.name,
            run_ids=tuple(run.run_id for run in row.best.runs if run.val_loss is not None),
            batchlab=findings.environment.batchlab if findings.environment else "",
            data_digest=findings.subject.data_digest,
        ),
        batch_configuration=configuration,
        hardware_calibration=HardwareCalibration(
            measured_performance=dict.fromkeys(workers, speed) if speed else {},
            workload_distribution=dict.fromkeys(workers, 1 / devices),
        ),
        expectation=Expectation(
            validation_loss=loss.value if loss else None,
            low=loss.low if loss else None,
            high=loss.high if loss else None,
            n=loss.n if loss else 0,
            hours=findings.token_budget / (speed * devices) / 3600 if speed else None,
        ),
        provenance=_provenance(findings, row, layout, speed_from),
        not_known=findings.not_answered,
    )


def _row(findings: Findings, global_batch_size: int | None) -> BatchRow:
    """The row to plan from; InputError with the reason when there is none."""
    surface = findings.surface
    if surface is None or findings.recommended is None:
        why = surface.cannot_tell.rstrip(".") if surface else "no training run has finished"
        raise InputError(f"There is no plan because the study has no answer: {why}.")
    usable = [row for row in surface.rows if row.best is not None and not row.starved]
    wanted = global_batch_size or findings.recommended.layout.global_batch_size
    for row in usable:
        if row.global_batch_size == wanted:
            return row
    measured = say_list([row.global_batch_size for row in usable])
    raise InputError(
        f"Batch {wanted} has no judged measurement in this study, and its learning rate would be a guess; "
        f"measured are {measured}."
    )


def _layout(findings: Findings, row: BatchRow, devices: int) -> BatchLayout:
    """The measured layout on one device; otherwise an equal share per device in the fewest micro-batches that fit."""
    size = row.global_batch_size
    if devices < 1:
        raise InputError(f"--devices {devices}: give at least 1.")
    if devices == 1:
        return row.layout
    possible = [count for count in range(1, min(size, 1024) + 1) if size % count == 0]
    if devices > size:
        raise InputError(
            f"{devices} devices cannot share a batch of {size}: one sample each is the least; use at most {size} devices "
            "or a larger measured batch."
        )
    if size % devices:
        near = [max(c for c in possible if c < devices), *[c for c in possible if c > devices][:1]]
        raise InputError(
            f"{devices} devices cannot share a batch of {size} equally, and most trainers need that; "
            f"use {' or '.join(map(str, near))} devices, or another measured batch."
        )
    if not findings.separable:
        raise InputError(
            f"This model mixes the samples of a batch, so {devices} devices with {size // devices} samples each would "
            "train something else than was measured; plan for one device."
        )
    fits = findings.memory.max_micro_batch_size if findings.memory else None
    most = min(fits or row.layout.micro_batch_size, findings.experiment.batch.micro_batch_size or size)
    if findings.experiment.batch.micro_batching == "off":
        most = max(most, row.layout.micro_batch_size)
    return lay_out(size, most, data_parallel_size=devices, sequence_length=row.layout.sequence_length)


def _optimizer(findings: Findings, global_batch_size: int) -> OptimizerPlan:
    config = findings.experiment.optimizer
    ratio = global_batch_size / findings.experiment.reference_batch_size
    adam = config.name == "adamw"
    decay = None if config.name == "task" else config.weight_decay
    if decay is not None and config.across_batch is AcrossBatch.HALF_LIFE_AND_DECAY:
        decay = weight_decay_at(decay, ratio)
    beta2 = config.beta2 if config.across_batch is AcrossBatch.FIXED else beta2_at(config.beta2, ratio)
    return OptimizerPlan(
        name=config.name,
        beta1=config.beta1 if adam else None,
        beta2=beta2 if adam else None,
        epsilon=config.epsilon if adam else None,
        momentum=config.momentum if config.name == "sgd" else None,
        weight_decay=decay,
        grad_clip=config.grad_clip,
        across_batch=config.across_batch,
    )


def _speed(throughput: ThroughputFinding | None, layout: BatchLayout) -> tuple[float | None, Provenance]:
    """tokens/s of one device at its share, from the measured size of that share or the nearest one."""
    if throughput is None or not throughput.points:
        return None, Provenance(status="given", source="speed was not measured")
    share = layout.global_batch_size // layout.data_parallel_size
    point = min(
        throughput.points,
        key=lambda p: (abs(math.log(p.layout.global_batch_size / share)), p.layout.global_batch_size),
    )
    size, n = point.layout.global_batch_size, point.tokens_per_second.n
    speed = point.tokens_per_second.value
    if layout.data_parallel_size == 1 and size == share:
        return speed, Provenance(status="measured", source=f"throughput of batch {size}, alone on the device", n=n)
    return speed, Provenance(
        status="extrapolated",
        source=f"throughput of batch {size} on one device for a share of {share}; communication is not included",
        n=n,
    )


def _provenance(findings: Findings, row: BatchRow, layout: BatchLayout, speed: Provenance) -> dict[str, Provenance]:
    assert row.best is not None
    experiment, one = findings.experiment, layout.data_parallel_size == 1
    n = len(row.best.losses)
    runs = f"{say_count(n, 'seed')} at batch {row.global_batch_size}, learning rate {say_rate(row.best.learning_rate)}"
    tried = f"lowest loss of {say_count(len(row.cells), 'learning rate')} tried at this batch size"
    edge = f"; {row.remark}" if row.remark else ""
    recommended = findings.recommended
    chosen = recommended is not None and recommended.layout.global_batch_size == row.global_batch_size
    why = recommended.why if recommended is not None and chosen else "asked for"
    memory = findings.memory
    fits = f"largest micro-batch that ran: {memory.max_micro_batch_size} ({memory.status})" if memory else "not probed"
    solved = f"global batch ÷ {say_count(layout.data_parallel_size, 'device')}, in the fewest pieces that fit; {fits}"
    solved += "; every device assumed to have this one's memory" if not one else ""
    optimizer, reference = experiment.optimizer, experiment.reference_batch_size
    rule = (
        "the same at every batch size"
        if optimizer.across_batch is AcrossBatch.FIXED
        else (f"half-life in tokens held: {optimizer.beta2:g}^(batch ÷ {reference}); trained with in the study")
    )
    entries = {
        "global_batch_size": Provenance(status="measured", source=f"{runs}; {why}", n=n),
        "learning_rate": Provenance(status="measured", source=tried + edge, n=n),
        "micro_batch_size": Provenance(
            status="measured" if one else "extrapolated", source="the layout that was trained" if one else solved
        ),
        "grad_accum_steps": Provenance(status="measured" if one else "computed", source="share ÷ micro-batch"),
        "data_parallel_size": Provenance(
            status="measured" if one else "given", source="asked for" if not one else "one device"
        ),
        "tokens_per_step": Provenance(status="computed", source="global batch × sequence length"),
        "token_budget": Provenance(status="measured", source="every run of the study had it", n=len(findings.runs)),
        "steps": Provenance(status="computed", source="token budget ÷ tokens per step"),
        "warmup_tokens": Provenance(
            status="given", source=f"schedule.warmup_fraction {experiment.schedule.warmup_fraction:g} of the budget"
        ),
        "warmup_steps": Provenance(status="computed", source="warm-up tokens ÷ tokens per step, rounded up"),
        "schedule": Provenance(status="given", source="the study's setting, not varied"),
        "optimizer": Provenance(status="given", source="the study's setting, not varied"),
        "optimizer.beta2": Provenance(status="computed", source=rule),
        "measured_performance": speed,
        "workload_distribution": Provenance(status="computed", source="equal shares of equal devices"),
        "expectation.validation_loss": Provenance(
            status="measured" if one else "computed",
            source=runs + ("" if one else "; splitting a batch over devices does not change its gradient"),
            n=n,
        ),
        "expectation.hours": Provenance(
            status="extrapolated" if speed.status == "extrapolated" else "computed",
            source="token budget ÷ (tokens/s × devices), evaluation and start-up not included",
        ),
    }
    if optimizer.name != "adamw":
        del entries["optimizer.beta2"]
    return entries


def paste_block(plan: TrainingPlan) -> str:
    """The settings, one per line; valid as TOML and as Python."""
    c = plan.batch_configuration
    items = items_of(c.unit, c.sequence_length)
    lines = [f"# batchlab study {plan.made_from.study}: {c.global_batch_size} {items} per step"]
    values: dict[str, int | float | str | None] = {
        "micro_batch_size": c.micro_batch_size,
        "grad_accum_steps": c.grad_accum_steps,
        "data_parallel_size": c.data_parallel_size,
        "sequence_length": c.sequence_length if c.unit is Unit.TOKENS else None,
        "learning_rate": c.learning_rate,
        "schedule": c.schedule.kind,
        "warmup_steps": c.warmup_steps,
        "steps": c.steps,
        "optimizer": c.optimizer.name,
        "beta1": c.optimizer.beta1,
        "beta2": c.optimizer.beta2,
        "momentum": c.optimizer.momentum,
        "weight_decay": c.optimizer.weight_decay,
        "grad_clip": c.optimizer.grad_clip,
        "precision": c.precision,
    }
    return "\n".join(lines + [f"{key} = {_literal(value)}" for key, value in values.items() if value is not None])


def _literal(value: int | float | str) -> str:
    if isinstance(value, float):
        short = f"{value:.6g}"
        return short if any(mark in short for mark in ".e") else f"{short}.0"
    return json.dumps(value)


def format_plan(plan: TrainingPlan, format: Format = "json") -> str:
    """The plan as text in a trainer's own names; InputError where that trainer cannot express it."""
    match format:
        case "json":
            return plan.model_dump_json(indent=2)
        case "hf":
            return json.dumps(_hf(plan), indent=2)
        case "torchtitan":
            return tomli_w.dumps(_torchtitan(plan)).rstrip("\n")
        case "nanochat":
            return _nanochat(plan)
        case "torchrun":
            return _torchrun(plan)
    raise InputError(f"There is no plan format {format!r}; possible: {', '.join(get_args(Format))}.")


def _require_equal_pieces(plan: TrainingPlan, trainer: str) -> None:
    c = plan.batch_configuration
    pieces = c.micro_batch_size * c.grad_accum_steps * c.data_parallel_size
    if pieces != c.global_batch_size:
        share = c.global_batch_size // c.data_parallel_size
        even = max(size for size in range(1, c.micro_batch_size + 1) if share % size == 0)
        raise InputError(
            f"{trainer} needs micro-batches of equal size, and {share} samples per device were split into "
            f"{c.grad_accum_steps} of up to {c.micro_batch_size}; micro-batches of {even} would divide it, or choose "
            "another measured batch."
        )


def _hf(plan: TrainingPlan) -> dict[str, Any]:
    """Keyword arguments of transformers.TrainingArguments. Sequence length is the data set's there."""
    _require_equal_pieces(plan, "transformers")
    c, o, schedule = plan.batch_configuration, plan.batch_configuration.optimizer, plan.batch_configuration.schedule
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": c.micro_batch_size,
        "gradient_accumulation_steps": c.grad_accum_steps,
        "learning_rate": c.learning_rate,
        "warmup_steps": c.warmup_steps,
        "max_steps": c.steps,
        "max_grad_norm": o.grad_clip or 0.0,
        "bf16": c.precision == "bf16",
        "tf32": c.precision == "tf32",
        "torch_compile": c.compile,
    }
    match schedule.kind:
        case "constant":
            arguments["lr_scheduler_type"] = "constant_with_warmup"
        case "cosine":
            arguments["lr_scheduler_type"] = "cosine_with_min_lr"
            arguments["lr_scheduler_kwargs"] = {"min_lr_rate": schedule.final_fraction}
        case "wsd":
            arguments["lr_scheduler_type"] = "warmup_stable_decay"
            decay = round(schedule.decay_fraction * c.steps)
            arguments["lr_scheduler_kwargs"] = {
                "num_decay_steps": decay,
                "decay_type": "linear",
                "min_lr_ratio": schedule.final_fraction,
            }
    if o.name == "adamw":
        arguments |= {
            "optim": "adamw_torch",
            "adam_beta1": o.beta1,
            "adam_beta2": o.beta2,
            "adam_epsilon": o.epsilon,
            "weight_decay": o.weight_decay,
        }
    elif o.name == "sgd":
        arguments |= {"optim": "sgd", "weight_decay": o.weight_decay}  # momentum is not an argument there
    return arguments


def _torchtitan(plan: TrainingPlan) -> dict[str, Any]:
    """Sections of a torchtitan job config; batch sizes count sequences, and accumulation follows from the two."""
    _require_equal_pieces(plan, "torchtitan")
    c, o, schedule = plan.batch_configuration, plan.batch_configuration.optimizer, plan.batch_configuration.schedule
    names = {"adamw": "AdamW"}
    optimizer = {"name": names.get(o.name), "lr": c.learning_rate, "beta1": o.beta1, "beta2": o.beta2}
    optimizer |= {"eps": o.epsilon, "weight_decay": o.weight_decay}
    scheduler: dict[str, Any] = {"warmup_steps": c.warmup_steps, "min_lr_factor": schedule.final_fraction}
    match schedule.kind:
        case "constant":
            scheduler |= {"decay_ratio": 0.0}
        case "cosine":
            scheduler |= {"decay_type": "cosine"}
        case "wsd":
            scheduler |= {"decay_type": "linear", "decay_ratio": schedule.decay_fraction}
    return {
        "optimizer": {key: value for key, value in optimizer.items() if value is not None},
        "lr_scheduler": scheduler,
        "training": {
            "local_batch_size": c.micro_batch_size,
            "global_batch_size": c.global_batch_size,
            "seq_len": c.sequence_length,
            "steps": c.steps,
            **({"max_norm": o.grad_clip} if o.grad_clip is not None else {}),
        },
        "parallelism": {"data_parallel_replicate_degree": c.data_parallel_size},
    }


def _nanochat(plan: TrainingPlan) -> str:
    """Arguments of nanochat's base_train, whose total batch counts tokens; it has learning rates of its own."""
    _require_equal_pieces(plan, "nanochat")
    c = plan.batch_configuration
    if c.unit is not Unit.TOKENS:
        raise InputError("nanochat trains on tokens, and this study counts samples; use another format.")
    command = ["torchrun", "--standalone", f"--nproc_per_node={c.data_parallel_size}", "-m", "scripts.base_train", "--"]
    command += [
        f"--max-seq-len={c.sequence_length}",
        f"--device-batch-size={c.micro_batch_size}",
        f"--total-batch-size={c.tokens_per_step}",
        f"--num-iterations={c.steps}",
    ]
    note = f"# its learning rates belong to its own optimizers; {say_rate(c.learning_rate)} was measured with {c.optimizer.name}"
    return f"{note}\n{' '.join(command)}"


def _torchrun(plan: TrainingPlan) -> str:
    """A sketch of a launch: your script, arguments in this plan's words."""
    c = plan.batch_configuration
    arguments = {
        "micro-batch-size": c.micro_batch_size,
        "grad-accum-steps": c.grad_accum_steps,
        "learning-rate": _literal(c.learning_rate),
        "warmup-steps": c.warmup_steps,
        "steps": c.steps,
        "beta2": _literal(c.optimizer.beta2) if c.optimizer.beta2 is not None else None,
    }
    listed = [f"--{key} {value}" for key, value in arguments.items() if value is not None]
    return " \\\n  ".join([f"torchrun --standalone --nproc-per-node {c.data_parallel_size} your_train.py", *listed])
