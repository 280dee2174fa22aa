"""The method chapter: how each number was obtained and when not to rely on it, as (name, sentences)."""

from __future__ import annotations

from typing import assert_never

from batchlab.analysis.findings import Findings
from batchlab.core.experiment import AcrossBatch, Experiment
from batchlab.core.format import format_bytes, format_interval, format_learning_rate, format_list, format_plural
from batchlab.core.pairing import Pairing
from batchlab.core.record import Outcome
from batchlab.core.spec import MIN_STEPS, MIN_WARMUP_STEPS
from batchlab.scaling.time_constants import BETA2_RANGE
from batchlab.words.capacity_reasons import describe_limit
from batchlab.words.phrases import format_differences
from batchlab.words.run_length import run_length
from batchlab.words.setup import Term
from batchlab.words.sweep import describe_no_fit
from batchlab.words.units import Units


def method(findings: Findings) -> tuple[Term, ...]:
    """Pairing, schedule, best learning rate, noise, optimizer settings, speed, memory and environments."""
    units = Units.of(findings)
    terms = [
        ("pairing", _pairing(findings)),
        ("schedule", _schedule(findings)),
        ("best learning rate", _best_learning_rate(findings)),
        ("noise", _noise(findings)),
        (
            "undertrained",
            f"Sizes with fewer than {MIN_STEPS} steps, or fewer than {MIN_WARMUP_STEPS} warm-up steps, are trained but "
            "not compared.",
        ),
        ("across batch sizes", _across_batch(findings)),
        (f"{units.name}/s", _speed(findings)),
        ("memory", _memory(findings)),
        ("device", _environments(findings)),
    ]
    if findings.accepted_edits:
        edits = format_list(findings.accepted_edits)
        terms.append(("accepted edits", f"The study was continued after these changed: {edits}."))
    if not findings.sample_independent:
        terms.append(
            (
                "sample independence",
                "The samples of a batch influence each other in this model, so splitting a batch into micro-batches "
                "changes what is trained.",
            )
        )
    return tuple(terms)


def _schedule(findings: Findings) -> str:
    if findings.experiment.command is not None:
        return "The script's own; only what has a placeholder in the command follows the batch size."
    units = Units.of(findings)
    return (
        f"{_at_equal_time(findings)}The learning rate is a function of {units.name} seen, the same for every batch "
        f"size. Each step uses the mean of that function over the {units.name} of the step."
    )


def _speed(findings: Findings) -> str:
    if findings.experiment.command is not None:
        text = (
            "From steps that the script itself reports, or from whole runs of two lengths, so that starting cancels; "
            "evaluations between are counted"
        )
    else:
        text = (
            "Whole optimizer steps, timed alone on the device after warm-up: the median of several blocks. Compilation "
            "and warm-up are excluded"
        )
    return (
        f"{text}. Training times in this report are the budget divided by this speed, not the wall time of the sweep."
    )


def _pairing(findings: Findings) -> str:
    surface = findings.surface
    if not surface:
        return "Nothing to pair: no training run has finished."
    if not any(run.outcome is Outcome.COMPLETED for run in findings.runs):
        return "Nothing to pair: no training run has completed."
    match surface.pairing:
        case Pairing.VERIFIED:
            text = "Every batch size was trained on the same samples in the same order, which batchlab verified"
        case Pairing.DECLARED:
            text = (
                "Two runs with equal seeds came out equal, so a seed fixes the samples and their order; that they are "
                "the same for every batch size was not verified"
            )
        case Pairing.NONE:
            text = "Runs of different batch sizes may have seen different samples, which adds to their differences"
        case other:
            assert_never(other)
    if surface.correlation is not None:
        text += f"; across seeds, the losses of paired runs correlate with r = {surface.correlation:.2f}"
    if findings.run_seconds is not None:
        text += (
            "; at equal time this holds up to the fewest tokens of any size, and faster sizes go on to further data, "
            "so that less of the noise cancels in pairs"
        )
    return f"{text}."


def _at_equal_time(findings: Findings) -> str:
    if findings.run_seconds is None:
        return ""
    return (
        f"Every run has {run_length(findings)}: as many whole steps as fit into it at the speed measured for its batch "
        "size alone on the device, with evaluations and start-up left out. Its schedule ends there. "
    )


def _best_learning_rate(findings: Findings) -> str:
    rows = findings.surface.rows if findings.surface else ()
    fitted = sum(row.fit.valid for row in rows)
    reasons = sorted({describe_no_fit(row.fit.no_fit) for row in rows if row.fit.no_fit})
    text = (
        "The best learning rate of a size has the lowest mean loss over the seeds that all compared cells share, "
        "because means over different numbers of seeds are not comparable; the remaining seeds are then run there. "
        "A parabola in log LR through the neighbouring cells, or a cubic from five cells up, is drawn where it is "
        f"valid ({fitted} of {format_plural(len(rows), 'size')})"
    )
    if reasons:
        text += f"; not valid for the others: {'; '.join(reasons)}".rstrip(".")
    edges = [row.global_batch_size for row in rows if row.edge]
    if edges:
        text += (
            f". At batch {format_list(edges)} the best learning rate is at the edge of the range tried, so a better "
            "one may lie outside it"
        )
    return f"{text}."


def _noise(findings: Findings) -> str:
    surface = findings.surface
    if not surface or not surface.resolved or surface.noise_sd is None:
        return "Not measured: n = 1 run per cell. Differences between batch sizes may be due to the seed alone."
    best = f" The best loss is {format_interval(surface.best.val_loss)}." if surface.best else ""
    return (
        f"The standard deviation between seeds is {surface.noise_sd:.4f}, pooled over cells with {surface.noise_df} "
        f"degrees of freedom (n = {format_plural(surface.noise_seeds, 'run')}). Intervals are 95 % Student t "
        f"intervals.{best}"
    )


def _across_batch(findings: Findings) -> str:
    experiment, units = findings.experiment, Units.of(findings)
    if experiment.command is not None:
        return "The script's own settings, the same at every batch size unless the script changes them."
    if experiment.optimizer.name == "task" or findings.task_info.own_optimizer:
        return _own_across_batch(experiment)
    rule = experiment.optimizer.across_batch
    if findings.task_info.optimizer_family != "adam" or rule is AcrossBatch.FIXED:
        return f"All optimizer settings but the learning rate are the same at every batch size.{_decay(findings)}"
    low, high = BETA2_RANGE
    text = (
        f"beta2 is scaled with the batch size, so that its half-life in {units.name} is the same as at batch "
        f"{experiment.reference_batch_size:,}, within {low:g} to {high:g}, and epsilon with one over the square root "
        "of the batch size; see the table below"
    )
    if rule is AcrossBatch.HALF_LIFE_AND_DECAY:
        text += f". Weight decay is scaled so that its timescale in {units.name} is the same at equal learning rate"
    return f"{text}. Part of any apparent effect of the batch size is due to this rule.{_decay(findings)}"


def _own_across_batch(experiment: Experiment) -> str:
    text = "The task brings its own optimizer. The learning rate multiplies all its parameter groups"
    match experiment.optimizer.across_batch:
        case AcrossBatch.FIXED:
            return f"{text}. All its other settings are the same at every batch size."
        case AcrossBatch.HALF_LIFE:
            changed = "beta2 and epsilon"
        case AcrossBatch.HALF_LIFE_AND_DECAY:
            changed = "beta2, epsilon and weight decay"
        case other:
            assert_never(other)
    return (
        f"{text}. In groups that have them, {changed} follow the batch size as for AdamW, from what they are at batch "
        f"{experiment.reference_batch_size:,}; all other settings are the same at every size."
    )


def _decay(findings: Findings) -> str:
    """What a sweep over learning rates does to AdamW's decay."""
    optimizer = findings.experiment.optimizer
    if not optimizer.decays or findings.task_info.own_optimizer:
        return ""
    if optimizer.reference_learning_rate is not None:
        return (
            " Learning rate × weight decay is the same at every learning rate: weight decay is "
            f"{optimizer.weight_decay:g} at {format_learning_rate(optimizer.reference_learning_rate)}."
        )
    return (
        " Weight decay is the same at every learning rate, so a sweep of the learning rate also moves the timescale of "
        "decay, batch ÷ (learning rate × weight decay × budget); the table of cells has it as a share of the run. "
        "optimizer.reference_learning_rate holds it instead."
    )


def _memory(findings: Findings) -> str:
    found = findings.memory
    if not found:
        return "Not probed in this study."
    if findings.experiment.command:
        text = (
            "Peaks are those of the script's largest process as a whole, on a CUDA device those of its allocator, in "
            "short runs"
        )
    elif found.points:
        text = (
            "Peaks are those of whole training steps in a fresh process, including the optimizer, gradient clipping "
            "and evaluation"
        )
    else:
        text = "Peaks are predicted from traces of single steps"
    if found.limit_bytes:
        text += f"; the limit is {format_bytes(found.limit_bytes)}{describe_limit(found.limit_is)}"
    text += f"; no size above {found.searched_up_to:,} was considered"
    match found.status:
        case "predicted":
            status = "the largest size is predicted and was not run"
        case "verified":
            status = "the largest size ran, and larger ones may fit"
        case "proved":
            status = "the largest size ran, and one more sample did not fit"
        case "none":
            status = "no size fits"
        case other:
            assert_never(other)
    return f"{text}; {status}."


def _environments(findings: Findings) -> str:
    differences = format_differences(findings.environments_differ)
    if differences:
        return f"Not all records come from one environment: {'; '.join(differences)}."
    return "All records come from one environment." if findings.environment else "No record names its environment."
