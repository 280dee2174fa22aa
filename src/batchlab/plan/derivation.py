"""From findings to a plan: layout for the devices at hand, the optimizer at that batch, and a source for every number.

The global batch and the learning rate stay as measured on any number of devices: splitting a batch changes no gradient,
scaling it would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchlab.analysis.calibration import Calibration
from batchlab.analysis.capacity.proof import proof_of
from batchlab.analysis.extrapolation import Extrapolation, Target, extrapolate
from batchlab.analysis.findings import Findings
from batchlab.analysis.recommendation import Objective, recommend_for
from batchlab.analysis.values import BatchRow, ThroughputFinding, ThroughputPoint
from batchlab.analysis.verdict import Recommendation
from batchlab.core.batch import BatchLayout, lay_out, require_devices
from batchlab.core.errors import InputError
from batchlab.core.experiment import AcrossBatch, OptimizerConfig
from batchlab.core.format import format_count, format_list
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.spec import LARGEST_EVALUATION_BATCH, DeviceSettings, OptimizerSettings
from batchlab.integrations.script.answer import answer_command
from batchlab.plan.distributed import distributed_config
from batchlab.plan.extrapolation import extrapolated_provenance
from batchlab.plan.guidance import checklist, checkpoint_strategy, verification_steps
from batchlab.plan.hardware import HardwareCalibration, hardware_calibration, step_target
from batchlab.plan.provenance import calibrated_provenance, measured_provenance, with_proof
from batchlab.plan.training_plan import (
    BatchConfiguration,
    MadeFrom,
    OptimizerPlan,
    PerformanceTargets,
    PlannedTask,
    Provenance,
    TrainingPlan,
    warmup_epochs,
    warmup_steps,
)
from batchlab.runs.workload import workload_of
from batchlab.scaling import Refused, beta2_at, decay_timescale, epsilon_at, weight_decay_of
from batchlab.words.calibration import worker_name
from batchlab.words.capacity_reasons import describe_proof
from batchlab.words.critical import beyond_warnings
from batchlab.words.plan import NO_SPEED, describe_shareable, describe_speed
from batchlab.words.refusals import describe_refusal
from batchlab.words.scaling import describe_confirmation
from batchlab.words.sweep import no_answer
from batchlab.words.unknown import unknown

HERE = Target()
"""The study's own recommendation."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """What the plan is for: a measured row, or the measured row nearest to an extrapolated batch size."""

    near: BatchRow
    extrapolated: Extrapolation | None
    global_batch_size: int
    learning_rate: float
    token_budget: int
    warmup_tokens: float
    recommended: Recommendation | None  # None: the batch size was asked for
    same_model: bool = True


def make_plan(
    findings: Findings,
    devices: int | None = None,
    target: Target = HERE,
    objective: Objective | None = None,
    *,
    nodes: int = 1,
) -> TrainingPlan:
    """The plan for `devices` data-parallel devices like the measured ones (None: as many as were measured) on each of
    `nodes`, at the recommended batch, at the one that serves `objective`, or at `target`.

    `scaling` extrapolates to a batch size, budget or model size that was not measured, and every number that depends on
    it is marked. InputError where the study has no answer, no rule reaches the target, or the batch cannot be
    shared by that many devices.
    """
    per_node = findings.experiment.device.data_parallel_size if devices is None else devices
    devices = nodes * per_node
    choice = _choose(findings, target, objective)
    calibrated = findings.calibrated(choice.global_batch_size, devices) if choice.same_model else None
    layout = _layout(findings, choice, devices) if calibrated is None else calibrated.equal_layout
    experiment, extrapolated = findings.experiment, choice.extrapolated
    told = experiment.per_device(layout)
    configuration = BatchConfiguration(
        micro_batch_size=told.micro_batch_size,
        grad_accum_steps=layout.grad_accum_steps,
        per_gpu_batch_size=told.micro_batch_size,
        total_batch_size=layout.global_batch_size,
        gradient_accumulation_steps=layout.grad_accum_steps,
        data_parallel_size=told.data_parallel_size,
        global_batch_size=layout.global_batch_size,
        sequence_length=layout.sequence_length,
        unit=experiment.unit,
        tokens_per_step=layout.tokens_per_step,
        learning_rate=choice.learning_rate,
        warmup_tokens=choice.warmup_tokens,
        warmup_steps=warmup_steps(choice.warmup_tokens, layout.tokens_per_step),
        warmup_epochs=warmup_epochs(choice.warmup_tokens, findings.task_info.train_samples, layout.sequence_length),
        training_samples=findings.task_info.train_samples,
        token_budget=choice.token_budget,
        steps=choice.token_budget // layout.tokens_per_step,
        schedule=findings.schedule_at(choice.near.global_batch_size),
        optimizer=_optimizer(findings, choice, layout),
        precision=experiment.device.precision,
        compile=experiment.device.compile,
    )
    speed = _speed(findings.throughput if choice.same_model else None, layout)
    workers = [worker_name(rank) for rank in range(told.data_parallel_size)]
    shared = told.data_parallel_size // layout.data_parallel_size
    behind = choice.near.best.runs if choice.near.best else ()
    provenance = measured_provenance(findings, choice.near, choice.recommended, layout, _speed_from(speed, layout))
    if extrapolated:
        provenance |= extrapolated_provenance(extrapolated, choice.near)
    if calibrated:
        provenance |= calibrated_provenance(calibrated)
    provenance["micro_batch_size"] = with_proof(findings, layout, provenance["micro_batch_size"])
    task = _task(findings, choice, layout)
    made_from = MadeFrom(
        study=experiment.name,
        run_ids=tuple(run.run_id for run in behind if run.val_loss is not None),
        batchlab=findings.environment.batchlab if findings.environment else "",
        data_digest=findings.task_info.data_digest,
    )
    targets = _targets(findings, choice, layout, speed, calibrated)
    checkpoints = checkpoint_strategy(task) if task else None
    measured = speed.point.tokens_per_second if speed and speed.exact else None
    return TrainingPlan(
        made_from=made_from,
        batch_configuration=configuration,
        command=answer_command(experiment, layout, choice.learning_rate, choice.token_budget, choice.warmup_tokens),
        hardware_calibration=hardware_calibration(calibrated)
        if calibrated
        else HardwareCalibration(
            measured_performance=_measured_performance(workers, speed, shared),
            workload_distribution=dict.fromkeys(workers, 1 / len(workers)),
        ),
        performance_targets=targets,
        task=task,
        distributed_config=distributed_config(
            nodes, told.data_parallel_size // nodes, device=findings.task_info.device, trains=task is not None
        ),
        pre_flight_checklist=checklist(made_from, task, targets, checkpoints, devices, findings.task_info.device),
        verification_steps=verification_steps(configuration, targets, measured, () if extrapolated else behind),
        checkpoint_strategy=checkpoints,
        provenance=provenance,
        unknown=unknown(findings),
        warnings=(*beyond_warnings(findings.critical, layout.global_batch_size), *_unfit(findings, layout)),
        confirm=describe_confirmation(extrapolated.confirmation, experiment.unit) if extrapolated else "",
    )


def _task(findings: Findings, choice: _Choice, layout: BatchLayout) -> PlannedTask | None:
    """The task as it was measured; None for another model, or where a person's own program trains it."""
    experiment, info = findings.experiment, findings.task_info
    if info.integration is not None or not choice.same_model:
        return None
    fits = findings.memory.max_micro_batch_size if findings.memory else None
    return PlannedTask(
        workload=workload_of(experiment, info),
        optimizer=OptimizerSettings(
            config=experiment.optimizer,
            batch_ratio=layout.global_batch_size / experiment.reference_batch_size,
            rate_ratio=experiment.optimizer.rate_ratio(choice.learning_rate),
        ),
        device=DeviceSettings(
            name=info.device,
            precision=experiment.device.precision,
            compile=experiment.device.compile,
            memory_optimizations=experiment.device.memory_optimizations,
        ),
        framework=findings.environment.framework if findings.environment else "",
        parameter_count=info.parameter_count,
        evaluation_points=experiment.evaluation.points,
        evaluation_samples=experiment.evaluation.samples,
        evaluation_batch_size=min(LARGEST_EVALUATION_BATCH, fits or layout.micro_batch_size),
    )


def _unfit(findings: Findings, layout: BatchLayout) -> tuple[str, ...]:
    proof = proof_of(layout, findings.runs, findings.rechecks)
    return () if proof is None or proof.fits else (f"micro-batch {layout.micro_batch_size:,}: {describe_proof(proof)}",)


def _choose(findings: Findings, target: Target, objective: Objective | None) -> _Choice:
    """A measured row where the target is one, else an extrapolation; InputError with the reason where there is none."""
    surface, budget = findings.surface, findings.token_budget
    if surface is None or findings.recommended is None or budget is None:
        raise InputError(f"There is no plan because the study has no answer: {no_answer(findings)}")
    usable = [row for row in surface.rows if row.best is not None and not row.undertrained]
    if objective is not None and target != HERE:
        raise InputError(
            "An objective chooses among the batch sizes of the study at its own budget; omit it where you ask for "
            "another batch size, budget or model."
        )
    chosen = recommend_for(findings, objective) if objective else findings.recommended
    wanted = target.global_batch_size or chosen.layout.global_batch_size
    recommended = chosen if wanted == chosen.layout.global_batch_size else None
    if target.parameters is not None and findings.task_info.parameter_count is None:
        raise InputError("How many parameters this study's model has is not known, so it cannot be planned larger.")
    budget = findings.tokens_at(wanted) or budget
    same_model = target.parameters in (None, findings.task_info.parameter_count)
    if same_model and target.token_budget in (None, budget) and target.rate_rule is None:
        for row in usable:
            if row.global_batch_size == wanted and row.best is not None:
                warmup = findings.schedule_at(wanted).warmup_tokens(budget, row.layout.tokens_per_step)
                return _Choice(row, None, wanted, row.best.learning_rate, budget, warmup, recommended)
    extrapolated = extrapolate(findings, target)
    if isinstance(extrapolated, Refused):
        measured = format_list([row.global_batch_size for row in usable])
        why = describe_refusal(extrapolated.reason)
        raise InputError(f"{why} Measured are batch {measured} at {format_count(budget)}.")
    size = extrapolated.global_batch_size
    near = min(usable, key=lambda row: (abs(math.log(row.global_batch_size / size)), row.global_batch_size))
    rate = float(f"{extrapolated.learning_rate.value:.3g}")
    warmup = extrapolated.warmup_tokens.value
    return _Choice(near, extrapolated, size, rate, extrapolated.token_budget, warmup, recommended, same_model)


def _layout(findings: Findings, choice: _Choice, devices: int) -> BatchLayout:
    """The measured layout on one device; otherwise an equal share per device in the fewest micro-batches that fit."""
    row, size = choice.near, choice.global_batch_size
    require_devices(devices)
    if devices == row.layout.data_parallel_size and size == row.global_batch_size:
        return row.layout
    if devices > size:
        raise InputError(
            f"{devices} devices cannot share a batch of {size}, because each needs at least one sample; use at "
            f"most {size} devices or a larger measured batch. {_shareable(findings, size, devices)}".rstrip()
        )
    if size % devices:
        fewer = next(count for count in range(devices, 0, -1) if size % count == 0)
        more = next(count for count in range(devices, size + 1) if size % count == 0)
        raise InputError(
            f"{devices} devices cannot share a batch of {size} equally, and most trainers need that; "
            f"use {fewer} or {more} devices, or another measured batch. {_shareable(findings, size, devices)}".rstrip()
        )
    if not findings.sample_independent and devices > 1:
        raise InputError(
            f"This model mixes the samples of a batch, so {devices} devices with {size // devices} samples each would "
            "train something other than what was measured; plan for one device."
        )
    fits = findings.memory.max_micro_batch_size if findings.memory else None
    most = min(fits or row.layout.micro_batch_size, findings.experiment.batch.micro_batch_size or size)
    if findings.experiment.batch.micro_batching == "off":
        most = max(most, row.layout.micro_batch_size)
    if not findings.sample_independent and size > most:
        raise InputError(
            f"This model mixes the samples of a batch, so batch {size} cannot be split, and at most {most} samples are "
            "known to fit at once; plan for a smaller batch."
        )
    return lay_out(size, most, data_parallel_size=devices, sequence_length=row.layout.sequence_length)


def _shareable(findings: Findings, size: int, devices: int) -> str:
    """Measured batches that so many devices can share: the statistically tied ones, else the nearest and its cost."""
    surface = findings.surface
    rows = [
        row
        for row in (surface.rows if surface else ())
        if row.global_batch_size % devices == 0 and row.best is not None and not row.undertrained
    ]
    rows.sort(key=lambda row: abs(math.log(row.global_batch_size / size)))
    tied = [row.global_batch_size for row in rows if row.tied]
    costs = {cost.global_batch_size: cost for cost in findings.costs}
    nearest = rows[0].global_batch_size if rows else None
    return describe_shareable(devices, tied, nearest, costs.get(nearest) if nearest else None)


def _optimizer(findings: Findings, choice: _Choice, layout: BatchLayout) -> OptimizerPlan:
    config, extrapolated = findings.experiment.optimizer, choice.extrapolated
    ratio = layout.global_batch_size / findings.experiment.reference_batch_size
    adam = config.is_adam
    decay = None if config.name == "task" else weight_decay_of(config, ratio, config.rate_ratio(choice.learning_rate))
    if extrapolated and extrapolated.weight_decay:
        decay = extrapolated.weight_decay.value
    fixed = config.across_batch is AcrossBatch.FIXED
    beta2 = config.beta2 if fixed else beta2_at(config.beta2, ratio)
    epsilon = config.epsilon if fixed else epsilon_at(config.epsilon, ratio)
    steps = choice.token_budget / layout.tokens_per_step
    return OptimizerPlan(
        name=config.name,
        beta1=config.beta1 if adam else None,
        beta2=beta2 if adam else None,
        epsilon=epsilon if adam else None,
        momentum=config.momentum if config.name == "sgd" else None,
        weight_decay=decay,
        decay_timescale=decay_timescale(choice.learning_rate, decay, steps) if config.decays and decay else None,
        grad_clip=config.grad_clip,
        across_batch=config.across_batch,
        groups=tuple(_at(group, config, ratio, choice.learning_rate) for group in findings.task_info.optimizer_groups)
        if config.name == "task"
        else (),
    )


def _at(group: OptimizerGroup, config: OptimizerConfig, ratio: float, learning_rate: float) -> OptimizerGroup:
    """A group of the task's own optimizer at `ratio` × the reference batch size, where it was described."""
    scaled: dict[str, float] = {}
    if group.weight_decay is not None:
        own = config.model_copy(update={"weight_decay": group.weight_decay})
        scaled["weight_decay"] = weight_decay_of(own, ratio, config.rate_ratio(learning_rate))
    if config.across_batch is not AcrossBatch.FIXED:
        if group.beta2 is not None:
            scaled["beta2"] = beta2_at(group.beta2, ratio)
        if group.epsilon is not None:
            scaled["epsilon"] = epsilon_at(group.epsilon, ratio)
    return group.model_copy(update=scaled)


@dataclass(frozen=True, slots=True)
class _Speed:
    """The measured batch whose share of a device is nearest to the plan's. exact: the plan's own, on its devices."""

    point: ThroughputPoint
    exact: bool

    @property
    def workers(self) -> int:
        """Devices that were measured together."""
        return self.point.layout.data_parallel_size


def _speed(throughput: ThroughputFinding | None, layout: BatchLayout) -> _Speed | None:
    if throughput is None or not throughput.points:
        return None
    share = layout.global_batch_size // layout.data_parallel_size
    point = min(throughput.points, key=lambda p: (abs(math.log(p.share / share)), p.share))
    same = layout.data_parallel_size == point.layout.data_parallel_size
    return _Speed(point, exact=same and math.ceil(point.share) == share)


def _measured_performance(workers: list[str], speed: _Speed | None, shared: int) -> dict[str, float]:
    """tokens/s of the workers that were measured. shared: devices of a command, which were measured as one."""
    if speed is None:
        return {}
    return dict.fromkeys(workers[: speed.workers * shared], speed.point.device_speed / shared)


def _speed_from(speed: _Speed | None, layout: BatchLayout) -> Provenance:
    """The source of tokens/s, which were measured, though maybe not for this batch on so many devices."""
    if speed is None:
        return Provenance(status="given", source=NO_SPEED)
    share = layout.global_batch_size // layout.data_parallel_size
    devices = 1 if speed.exact else layout.data_parallel_size
    return Provenance(
        status="measured" if speed.exact else "extrapolated",
        source=describe_speed(math.ceil(speed.point.share), share, devices),
        n=speed.point.tokens_per_second.n,
    )


def _targets(
    findings: Findings, choice: _Choice, layout: BatchLayout, speed: _Speed | None, calibrated: Calibration | None
) -> PerformanceTargets:
    """Loss and memory as the study saw them, and the time at the measured or predicted speed."""
    loss = choice.near.val_loss if choice.extrapolated is None else None
    runs = choice.near.best.runs if choice.near.best and choice.near.layout == layout and choice.same_model else ()
    together = speed.point.device_speed * layout.data_parallel_size if speed else None
    if calibrated:
        together = calibrated.tokens_per_second
    scaling = findings.throughput.scaling if findings.throughput and choice.same_model else ()
    return PerformanceTargets(
        val_loss=loss.value if loss else None,
        low=loss.low if loss else None,
        high=loss.high if loss else None,
        n=loss.n if loss else 0,
        tokens_per_second=together,
        scaling_efficiency=next((point.efficiency for point in scaling if point.layout == layout), None),
        step=step_target(calibrated) if calibrated else None,
        hours=choice.token_budget / together / 3600 if together else None,
        peak_bytes=max((run.peak_bytes for run in runs if run.peak_bytes is not None), default=None),
    )
