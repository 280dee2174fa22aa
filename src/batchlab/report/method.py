"""What was set, and how each number is obtained: the parts of the report a sceptic reads first."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.core.experiment import AcrossBatch, Experiment
from batchlab.core.format import format_bytes, format_interval, format_learning_rate, format_list, format_plural
from batchlab.core.record import Outcome
from batchlab.report.tables import Column, Row, Table
from batchlab.report.words import Words, task_name
from batchlab.scaling import beta2_at, weight_decay_at
from batchlab.words.capacity_reasons import describe_limit

Term = tuple[str, str]


def setup(findings: Findings) -> tuple[Term, ...]:
    """Model, data, optimizer, schedule, budget, axes and device, as (name, value)."""
    experiment, task_info, words = findings.experiment, findings.task_info, Words.of(findings)
    optimizer, evaluation = experiment.optimizer, experiment.evaluation
    model = ", ".join(f"{key} {value}" for key, value in experiment.model.items())
    terms = [
        ("task", task_name(experiment.task)),
        ("model", f"{task_info.parameter_count:,} parameters" + (f"; {model}" if model else "")),
        ("data", f"{task_info.data_source}; digest {task_info.data_digest[:12]}"),
        (
            "samples",
            f"{task_info.train_samples:,} for training, {task_info.valid_samples:,} held out"
            + (f", {task_info.sequence_length:,} {words.units} each" if words.items == "sequences" else ""),
        ),
        ("budget", f"{findings.token_budget:,} {words.units} per run" if findings.token_budget else "not set yet"),
        ("batch sizes", format_list(experiment.batch.global_batch_sizes)),
        ("learning rates", _rates(findings)),
        ("seeds", f"{experiment.sweep.seeds:,} at the cells that are compared{_fresh(experiment)}"),
        ("optimizer", _optimizer(findings)),
        ("schedule", _schedule(findings)),
        (
            "evaluation",
            f"{format_plural(evaluation.points, 'time')} per run on up to {evaluation.samples:,} held-out samples, "
            "the same for every run",
        ),
        ("precision", experiment.device.precision + (", compiled" if experiment.device.compile else "")),
    ]
    if task_info.vocabulary:
        terms.insert(3, ("vocabulary", f"{task_info.vocabulary:,}"))
    if optimizer.grad_clip and not task_info.own_optimizer:
        terms.insert(-3, ("gradient clipping", f"norm {optimizer.grad_clip:g}"))
    environment = findings.environment
    if environment:
        memory = environment.device_memory_bytes
        processor = f"; {environment.processor}" if environment.processor else ""
        instructions = f" ({environment.instruction_set})" if environment.instruction_set else ""
        size = f", {memory / 2**30:.2f} GiB" if memory else ""
        terms.append(("device", f"{environment.device}{size}{processor}{instructions}, {environment.cores} cores"))
        versions = (
            f"batchlab {environment.batchlab}",
            environment.framework,
            f"Python {environment.python}",
            f"numpy {environment.numpy}",
            environment.platform,
        )
        terms.append(("versions", ", ".join(v for v in versions if v)))
    return tuple(terms)


def _rates(findings: Findings) -> str:
    tried = sorted({run.learning_rate for run in findings.runs})
    rates = [format_learning_rate(rate) for rate in tried or findings.experiment.sweep.learning_rates or ()]
    return format_list(rates) or "not chosen yet"


def _optimizer(findings: Findings) -> str:
    optimizer = findings.experiment.optimizer
    if findings.task_info.own_optimizer or optimizer.name == "task":
        return "the task's own; the learning rate reaches it through its parameter groups"
    if optimizer.name == "sgd":
        return f"SGD, momentum {optimizer.momentum:g}, weight decay {optimizer.weight_decay:g}"
    return (
        f"AdamW, betas {optimizer.beta1:g} and {optimizer.beta2:g} at batch "
        f"{findings.experiment.reference_batch_size:,}, epsilon {optimizer.epsilon:g}, "
        f"weight decay {optimizer.weight_decay:g}"
    )


def _schedule(findings: Findings) -> str:
    schedule = findings.experiment.schedule
    warmup = f"warm-up over {schedule.warmup_fraction * 100:.3g} % of the budget"
    if schedule.kind == "constant":
        return f"{warmup}, then constant"
    end = f"{schedule.final_fraction * 100:.3g} % of the peak"
    if schedule.kind == "cosine":
        return f"{warmup}, then cosine to {end}"
    return f"{warmup}, constant, then linear over the last {schedule.decay_fraction * 100:.3g} % to {end}"


_PAIRING = {
    "verified": "Every batch size trained on the same samples in the same order, checked by batchlab",
    "declared": "The task declares that every batch size sees the same samples in the same order; not checked",
    "none": "Runs of different batch sizes may have seen different samples, so their differences include that",
}


def method(findings: Findings) -> tuple[Term, ...]:
    """How each number is obtained and when not to believe it, as (what, sentence)."""
    words = Words.of(findings)
    terms = [
        ("pairing", _pairing(findings)),
        (
            "schedule",
            f"The learning rate is a curve over {words.units}, the same for every batch size; a step uses its mean "
            f"over the {words.units} of that step.",
        ),
        ("best learning rate", _best_rate(findings)),
        ("noise", _noise(findings)),
        ("undertrained", "A size with under 50 steps, or under 5 steps of warm-up, is run but not judged."),
        ("across batch sizes", _across(findings)),
        (
            f"{words.units}/s",
            "Whole optimizer steps timed alone on the device after warm-up; the median of several blocks. Compilation "
            "and warm-up are apart. Times in this report are the budget divided by it, not the clock of the sweep.",
        ),
        ("memory", _memory(findings)),
        ("device", _environments(findings)),
    ]
    if findings.accepted_edits:
        terms.append(
            ("edits accepted", f"The study went on after these changed: {format_list(findings.accepted_edits)}.")
        )
    if not findings.sample_independent:
        terms.append(
            (
                "not sample_independent",
                "The model mixes the samples of a batch, so a batch split into micro-batches trains something else.",
            )
        )
    return tuple(terms)


def _pairing(findings: Findings) -> str:
    surface = findings.surface
    if not surface:
        return "Nothing to pair: no training run has finished."
    if not any(run.outcome is Outcome.COMPLETED for run in findings.runs):
        return "Nothing to pair: no training run has completed."
    text = _PAIRING[surface.pairing]
    if surface.correlation is not None:
        text += f"; losses of paired runs correlate with r = {surface.correlation:.2f} over seeds"
    return f"{text}."


def _fresh(experiment: Experiment) -> str:
    count = len(experiment.sweep.confirmation_seeds)
    return f", {count} fresh ones at the best, which its loss is quoted from, where the budget allowed" if count else ""


def _best_rate(findings: Findings) -> str:
    rows = findings.surface.rows if findings.surface else ()
    fitted = sum(row.fit.valid for row in rows)
    reasons = sorted({row.fit.why_not for row in rows if not row.fit.valid and row.fit.why_not})
    text = (
        "The tried learning rate with the lowest loss on the seeds that the compared cells share, since a mean over "
        "several seeds is no match for one lucky run; further seeds then run there. A parabola in log LR through its "
        f"neighbours, a cubic from five cells on, is drawn where it holds ({fitted} of {format_plural(len(rows), 'size')})"
    )
    edges = [row.global_batch_size for row in rows if row.edge]
    if reasons:
        text += f"; elsewhere: {'; '.join(reasons)}".rstrip(".")
    if edges:
        text += f". At {format_list(edges)} the best is at the edge of what was tried, so a better one may lie beyond"
    return f"{text}."


def _noise(findings: Findings) -> str:
    surface = findings.surface
    if not surface or not surface.resolved or surface.noise_sd is None:
        return "Not measured: n = 1 run per cell. Differences between batch sizes may be the luck of one seed."
    best = f" The best is {format_interval(surface.best.val_loss)}." if surface.best else ""
    return (
        f"Standard deviation {surface.noise_sd:.4f} between seeds, pooled over cells with {surface.noise_df} degrees "
        f"of freedom (n = {format_plural(surface.noise_seeds, 'run')}); intervals are Student t, 95 %.{best}"
    )


def _across(findings: Findings) -> str:
    experiment = findings.experiment
    if experiment.optimizer.name == "task" or findings.task_info.own_optimizer:
        return "The task brings its own optimizer: apart from the learning rate its settings are equal at every size."
    rule = experiment.optimizer.across_batch
    if findings.task_info.optimizer_family != "adam" or rule is AcrossBatch.FIXED:
        return "Apart from the learning rate the optimizer's settings are equal at every batch size."
    words = Words.of(findings)
    text = (
        f"beta2 follows the batch size so that its half-life in {words.units} stays what it is at batch "
        f"{experiment.reference_batch_size:,}; values below"
    )
    if rule is AcrossBatch.HALF_LIFE_AND_DECAY:
        text += f". Weight decay is scaled so that its timescale in {words.units} stays equal at equal learning rate"
    return f"{text}. Part of what looks like an effect of batch size is this rule."


def time_constants(findings: Findings) -> Table:
    """beta2 (and weight decay) at every size, where a rule changes them; else a table without rows."""
    experiment = findings.experiment
    optimizer, rule = experiment.optimizer, experiment.optimizer.across_batch
    columns = (Column("batch"), Column("beta2"), Column("weight decay"))
    own = optimizer.name == "task" or findings.task_info.own_optimizer
    if own or findings.task_info.optimizer_family != "adam" or rule is AcrossBatch.FIXED:
        return Table(columns)
    rows = []
    for size in experiment.batch.global_batch_sizes:
        ratio = size / experiment.reference_batch_size
        follows = rule is AcrossBatch.HALF_LIFE_AND_DECAY
        decay = weight_decay_at(optimizer.weight_decay, ratio) if follows else optimizer.weight_decay
        rows.append(Row((f"{size:,}", f"{beta2_at(optimizer.beta2, ratio):.5g}", f"{decay:.3g}")))
    return Table(columns, tuple(rows))


def _memory(findings: Findings) -> str:
    found = findings.memory
    if not found:
        return "Not probed in this study."
    text = "Peaks are of whole steps, optimizer, clipping and evaluation included, in a fresh process"
    if found.limit_bytes and found.limit_is:
        text += f"; the limit is {format_bytes(found.limit_bytes)}{describe_limit(found.limit_is)}"
    text += f"; no size above {found.searched_up_to:,} was probed"
    proved = {
        "verified": "the largest size ran, larger ones may fit",
        "proved": "the largest size ran and a larger one failed",
        "none": "no size ran",
    }
    return f"{text}; {proved[found.status]}."


def _environments(findings: Findings) -> str:
    if findings.environments_differ:
        return f"Not all records come from one environment: {format_list(findings.environments_differ)}."
    return "All records come from one environment." if findings.environment else "No record names its environment."
