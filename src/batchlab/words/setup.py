"""The setup chapter: what was trained, on what data, how and where, as (name, value)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from batchlab.analysis.findings import Findings
from batchlab.core.experiment import CompileMode, Experiment, TaskReference
from batchlab.core.format import format_bytes, format_learning_rates, format_list, format_percent, format_plural
from batchlab.core.record import Environment, TaskInfo
from batchlab.search.starting_rates import StartFrom, starting_rates
from batchlab.words.optimizer_groups import describe_optimizers
from batchlab.words.run_length import exact_run_length, run_length
from batchlab.words.units import Units

Term = tuple[str, str]


def task_name(reference: TaskReference) -> str:
    """The task without the folders of the machine it was studied on."""
    if reference.kind == "recipe":
        return f"recipe {reference.target}"
    if reference.kind == "command":
        return PurePath(reference.target).name
    target = PurePath(reference.target).name if reference.kind == "file" else reference.target
    return f"{target}:{reference.attribute}"


def facts(findings: Findings) -> tuple[str, ...]:
    """The line under the title of the report: task, model, data, budget, device."""
    environment = findings.environment
    device = findings.task_info.device
    if environment:
        name = environment.device if environment.device not in ("", device) else environment.processor
        if name:
            device = f"{name} ({device})"
    return (
        task_name(findings.experiment.task),
        _parameters(findings.task_info),
        findings.task_info.data_source,
        f"{run_length(findings)} per run" if findings.token_budget else "budget not set yet",
        device if findings.experiment.command else f"{device}, {findings.experiment.device.precision}",
    )


def setup(findings: Findings) -> tuple[Term, ...]:
    """Model, data, optimizer, schedule, budget, axes and device."""
    experiment, task_info, units = findings.experiment, findings.task_info, Units.of(findings)
    optimizer, evaluation = experiment.optimizer, experiment.evaluation
    model = ", ".join(f"{key} {value}" for key, value in experiment.model.items())
    terms = [
        ("task", task_name(experiment.task)),
        ("model", _parameters(task_info) + (f"; {model}" if model else "")),
        ("data", f"{task_info.data_source}; digest {task_info.data_digest[:12] or 'not known'}"),
        (
            "samples",
            _samples(task_info)
            + (f", {task_info.sequence_length:,} {units.name} each" if units.items == "sequences" else ""),
        ),
        ("budget", f"{exact_run_length(findings)} per run" if findings.token_budget else "not set yet"),
        ("batch sizes", format_list(experiment.batch.global_batch_sizes)),
        ("learning rates", _learning_rates(findings)),
        ("seeds", _seeds(experiment)),
        ("optimizer", _optimizer(findings)),
        ("schedule", _schedule(experiment)),
        (
            "evaluation",
            "as the script evaluates"
            if task_info.integration == "script"
            else f"{format_plural(evaluation.points, 'time')} per run on up to {evaluation.samples:,} held-out "
            "samples, the same for every run",
        ),
        ("judged by", _judged_by(experiment)),
        (
            "precision",
            "the script's own"
            if experiment.command
            else experiment.device.precision + _compiled(experiment.device.compile),
        ),
    ]
    if task_info.vocabulary:
        terms.insert(3, ("vocabulary", f"{task_info.vocabulary:,}"))
    if optimizer.grad_clip:
        terms.insert(-3, ("gradient clipping", f"norm {optimizer.grad_clip:g}"))
    if findings.environment:
        terms += _environment(findings.environment)
    return tuple(terms)


def _compiled(mode: CompileMode) -> str:
    return "" if mode == "off" else f", compiled ({mode})"


def _judged_by(experiment: Experiment) -> str:
    metric = experiment.evaluation.judged_by
    if metric is None:
        return "the loss"
    text = f"{metric.title}, which every loss in this report is that no other name is given"
    return text if metric.better == "lower" else f"{text}; {metric.name} is better the higher it is"


def _environment(environment: Environment) -> list[Term]:
    processor = f"; {environment.processor}" if environment.processor else ""
    instructions = f" ({environment.instruction_set})" if environment.instruction_set else ""
    size = f", {format_bytes(environment.device_memory_bytes)}" if environment.device_memory_bytes else ""
    versions = (
        f"batchlab {environment.batchlab}",
        environment.framework,
        f"NVIDIA driver {environment.driver}" if environment.driver else "",
        f"Python {environment.python}",
        f"numpy {environment.numpy}",
        environment.platform,
    )
    capability = environment.compute_capability
    clock = f" at up to {environment.max_clock_mhz:,} MHz" if environment.max_clock_mhz else ""
    card = f"; compute capability {capability}{clock}" if capability else ""
    return [
        ("device", f"{environment.device}{size}{card}{processor}{instructions}, {environment.cores} cores"),
        ("versions", ", ".join(version for version in versions if version)),
    ]


def _learning_rates(findings: Findings) -> str:
    tried = sorted({run.learning_rate for run in findings.runs})
    text = format_learning_rates(tried or findings.experiment.sweep.learning_rates or ()) or "not chosen yet"
    if tried and findings.experiment.sweep.learning_rates is None:
        text += f"; {_start(findings.task_info)}"
    rule = findings.experiment.sweep.learning_rate_rule
    if rule is None:
        return text
    reference = findings.experiment.reference_batch_size
    return f"{text}; the grid follows the batch size by the {rule} rule from batch {reference:,}"


USUAL: Mapping[StartFrom, str] = {
    StartFrom.ADAM: "around 1e-3, usual for Adam on small language models",
    StartFrom.SGD: "around 0.1, usual for SGD with momentum on image models",
    StartFrom.MUON: "around 0.02, the default of Muon's authors (Jordan et al. 2024)",
    StartFrom.MUON_LIKE_ADAM: "around 1e-3 as for AdamW, since Muon's updates are scaled to the size of AdamW's "
    "(Liu et al. 2025, arXiv:2502.16982)",
    StartFrom.UNKNOWN: "between those usual for Adam and for SGD, because the optimizer is not known",
}
"""Where the learning rates lie that a sweep starts from."""


def _start(task_info: TaskInfo) -> str:
    start = starting_rates(task_info.optimizer_family, task_info.optimizer_groups)
    text = f"started {USUAL[start.usual_for]}"
    return text if start.ratio == 1 else f"{text}, divided by {start.ratio:.3g}, Muon's multiple of the learning rate"


def _seeds(experiment: Experiment) -> str:
    text = f"{experiment.sweep.seeds:,} at each of the compared cells"
    confirming = len(experiment.sweep.confirmation_seeds)
    if confirming:
        seeds = format_plural(confirming, "confirmation seed")
        text += f"; {seeds} at the best cell, whose loss is quoted from them, where the budget allows"
    return text


def _optimizer(findings: Findings) -> str:
    optimizer = findings.experiment.optimizer
    if findings.task_info.own_optimizer or optimizer.name == "task":
        if findings.experiment.command is not None:
            return "the script's own; only the learning rate changes"
        groups = findings.task_info.optimizer_groups
        listed = f": {describe_optimizers(groups)}" if groups else ""
        return f"the task's own, as built for batch {findings.experiment.reference_batch_size:,}{listed}"
    if optimizer.name == "sgd":
        return f"SGD, momentum {optimizer.momentum:g}, weight decay {optimizer.weight_decay:g}"
    name, decay = ("AdamW", "weight decay") if optimizer.name == "adamw" else ("Adam", "L2 penalty")
    return (
        f"{name}, betas {optimizer.beta1:g} and {optimizer.beta2:g} at batch "
        f"{findings.experiment.reference_batch_size:,}, epsilon {optimizer.epsilon:g}, "
        f"{decay} {optimizer.weight_decay:g}"
    )


def _parameters(task_info: TaskInfo) -> str:
    count = task_info.parameter_count
    return "a model of unknown size" if count is None else f"{count:,} parameters"


def _samples(task_info: TaskInfo) -> str:
    train = "an unknown number" if task_info.train_samples is None else f"{task_info.train_samples:,}"
    held_out = "unknown" if task_info.valid_samples is None else f"{task_info.valid_samples:,}"
    return f"{train} for training, {held_out} held out"


def _schedule(experiment: Experiment) -> str:
    schedule = experiment.schedule
    if schedule.kind == "task":
        known = f"{{warmup_steps}} is {schedule.warmup_fraction * 100:.3g} % of the steps"
        return f"the script's own; {known if schedule.warmup_fraction else 'its warm-up is not known'}"
    warmup = f"warm-up over {' or '.join(map(format_percent, experiment.warmup_fractions))} of the budget"
    warmup += f" and at least {schedule.min_warmup_steps:,} steps" if schedule.min_warmup_steps else ""
    end = f"{schedule.final_fraction * 100:.3g} % of the peak"
    match schedule.kind:
        case "constant":
            return f"{warmup}, then constant"
        case "cosine":
            return f"{warmup}, then cosine decay to {end}"
        case "wsd":
            floor = f" and at least {schedule.min_decay_steps:,} steps" if schedule.min_decay_steps else ""
            share = f"the last {schedule.decay_fraction * 100:.3g} %{floor}"
            return f"{warmup}, constant, then linear decay over {share} to {end}"
