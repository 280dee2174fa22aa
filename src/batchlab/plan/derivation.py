"""From findings to a plan: layout for the devices at hand, the optimizer at that batch, and a source for every number.

The global batch and the learning rate stay as measured on any number of devices: splitting a batch changes no gradient,
scaling it would.
"""

from __future__ import annotations

import math

from batchlab.analysis.findings import BatchRow, Findings, ThroughputFinding
from batchlab.analysis.wording import say_count, say_list, say_rate
from batchlab.batch import BatchLayout, lay_out
from batchlab.errors import InputError
from batchlab.experiment import AcrossBatch
from batchlab.plan.training_plan import (
    BatchConfiguration,
    Expectation,
    HardwareCalibration,
    MadeFrom,
    OptimizerPlan,
    Provenance,
    TrainingPlan,
)
from batchlab.scaling import beta2_at, weight_decay_at


def make_plan(findings: Findings, devices: int = 1, global_batch_size: int | None = None) -> TrainingPlan:
    """The plan for `devices` data-parallel devices like the measured one, at the recommended batch or another measured.

    InputError where the study has no answer, the batch was not measured, or it cannot be shared by that many devices.
    """
    row = _row(findings, global_batch_size)
    assert row.best is not None
    assert findings.token_budget is not None
    layout = _layout(findings, row, devices)
    experiment = findings.experiment
    warmup_tokens = experiment.schedule.warmup_fraction * findings.token_budget
    configuration = BatchConfiguration(
        micro_batch_size=layout.micro_batch_size,
        grad_accum_steps=layout.grad_accum_steps,
        per_gpu_batch_size=layout.micro_batch_size,
        total_batch_size=layout.global_batch_size,
        gradient_accumulation_steps=layout.grad_accum_steps,
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
    if devices > size:
        raise InputError(
            f"{devices} devices cannot share a batch of {size}, one sample each is the least; use at most {size} "
            "devices or a larger measured batch."
        )
    if size % devices:
        fewer = next(count for count in range(devices, 0, -1) if size % count == 0)
        more = next(count for count in range(devices, size + 1) if size % count == 0)
        raise InputError(
            f"{devices} devices cannot share a batch of {size} equally, and most trainers need that; "
            f"use {fewer} or {more} devices, or another measured batch."
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
    adam = config.is_adam
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
    if not optimizer.is_adam:
        del entries["optimizer.beta2"]
    return entries
