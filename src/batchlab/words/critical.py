"""What steps to a loss, branches and the noise scale say, in sentences: definition, answer, caveat, disagreement.

The noise scale stands beside the critical batch sizes and is never called one: with Adam or Muon it is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.critical.branches import BranchFinding
from batchlab.analysis.critical.finding import CriticalFinding, beyond
from batchlab.analysis.critical.noise_scale import NoiseScale
from batchlab.analysis.critical.noise_series import NoiseSeries
from batchlab.analysis.critical.steps_finding import CriticalBatch, Definition
from batchlab.analysis.findings import Findings
from batchlab.core.format import batch_items, format_count, format_list, format_loss, format_plural, format_size
from batchlab.words.critical_reasons import branch_reason, noise_reason, settling_runs, steps_reason
from batchlab.words.estimates import (
    CANNOT_TELL,
    DEFINITION,
    format_branches,
    format_critical,
    format_noise,
    format_signs,
)
from batchlab.words.gradient_samples import why_no_gradient_samples

TWICE_STEPS, TWICE, OVERHEAD = (
    DEFINITION[one] for one in (Definition.TWICE_STEPS, Definition.TWICE_SAMPLES, Definition.OVERHEAD_20)
)

DEFINITIONS = {
    "steps to a loss": "From the steps and samples that each size needs to reach one loss. "
    f"{OVERHEAD}: 20 % more samples than at the smallest size fitted. {TWICE}, {TWICE_STEPS}: twice the "
    "fewest samples, twice the fewest steps. The last two are one number only on the textbook curve; the intervals "
    "allow for others.",
    "branches": "branched: the largest multiple of the batch size that, continuing from one checkpoint for a window, "
    "loses no more than a tolerance. It holds for that moment, window and learning-rate rule.",
    "noise scale": "tr Σ / |G|²: the batch size whose gradient noise is as large as the gradient, from the sweep's own "
    "runs. Not a critical batch size: it would be one for plain SGD on a loss of equal curvature in all directions, "
    "and it is not with Adam or Muon.",
}


def headline(found: Findings) -> str:
    """Critical batch sizes that are known, by definition: `B_crit (20 % overhead) 22 [18, 27] · branched below 64`."""
    critical = found.critical
    if critical is None:
        return ""
    parts = [f"{DEFINITION[one.definition]} {format_critical(one)}" for one in critical.steps.estimates]
    if critical.branches and critical.branches[-1].status != "cannot_tell":
        parts.append(f"branched {format_branches(critical.branches[-1])}")
    return " · ".join(parts)


def measured(found: Findings) -> bool:
    """Whether runs were trained to estimate a critical batch size from, enough or not."""
    critical = found.critical
    return critical is not None and bool(critical.branches or critical.curve)


def at_recommended(found: Findings) -> NoiseSeries | None:
    """The noise scale of the recommended batch size's run, or else of the run with the most sampled steps."""
    critical = found.critical
    if critical is None or not critical.noise:
        return None
    chosen = found.recommended.layout.global_batch_size if found.recommended else None
    exact = [series for series in critical.noise if series.batch == chosen and series.whole.status != "undetermined"]
    return exact[0] if exact else max(critical.noise, key=lambda series: series.whole.steps)


def answer_lines(found: Findings) -> tuple[tuple[str, str, str], ...]:
    """(estimator, answer, caveat) of each of the three."""
    critical = found.critical
    if critical is None:
        return ()
    return (_steps_line(found, critical), _branch_line(found, critical), _noise_line(found, critical))


def _noise_line(found: Findings, critical: CriticalFinding) -> tuple[str, str, str]:
    name = "noise scale"
    series = at_recommended(found)
    if series is None:
        nothing = "the runs logged no gradient norms (noise.points is 0, or they are too short)"
        why = "; ".join(why_no_gradient_samples(*reasons) for reasons in critical.no_noise)
        return name, CANNOT_TELL, _sentences([why or nothing])
    items = batch_items(found.experiment.unit, found.experiment.sequence_length)
    latest = series.latest
    of = " (norm layers alone)" if series.parameters == "norm_layers" else ""
    answer = f"{format_noise(latest)} {items}{of} at the end of the run at batch {series.batch:,}"
    if len(series.windows) > 1 and series.windows[0].value is not None:
        answer += f", {format_noise(series.windows[0])} at its beginning"
    answer += f"; for sign updates {format_signs(series.signs)}" if series.signs is not None else ""
    caveats = [f"from {format_plural(series.whole.steps, 'sampled step')}"]
    if reason := noise_reason(latest):
        caveats.append(reason)
    if series.whole.overflowed:
        caveats.append(f"{format_plural(series.whole.overflowed, 'step')} overflowed and left out")
    if series.norm_layers is not None:
        caveats.append(_norm_layers(series, series.norm_layers))
    return name, answer, _sentences(caveats)


def _sentences(phrases: Sequence[str]) -> str:
    """Each phrase as a sentence of its own."""
    return " ".join(f"{phrase[0].upper()}{phrase[1:].rstrip('.')}." for phrase in phrases)


def _norm_layers(series: NoiseSeries, norm_layers: NoiseScale) -> str:
    """How the noise scale of norm layers alone relates to that of all parameters in this run."""
    ratio = series.norm_layer_ratio
    if series.parameters == "all":
        times = f", to be multiplied by {ratio:.2f} in this run" if ratio else ""
        return f"over the whole run, norm layers alone give {format_noise(norm_layers)}{times}"
    if ratio is None:
        return "norm layers alone have another noise scale, and no sampled step shows what to multiply it by"
    steps = format_plural(series.calibrated, "sampled step")
    return f"to be multiplied by {ratio:.2f}, measured at {steps} that logged all parameters too"


def _steps_line(found: Findings, critical: CriticalFinding) -> tuple[str, str, str]:
    steps = critical.steps
    items = batch_items(found.experiment.unit, found.experiment.sequence_length)
    numbers = [f"{DEFINITION[one.definition]} {format_critical(one)} {items}{_over(one)}" for one in steps.estimates]
    nothing = "not bracketed by the sizes measured" if steps.status == "none_inside" else CANNOT_TELL
    caveats = [reason] if (reason := steps_reason(steps)) else []
    if critical.target is not None:
        loss = f"to loss {format_loss(critical.target)}, {format_source(critical)}"
        caveats.append(f"{loss}; fitted at batch {format_list([round(b) for b in steps.used])}" if steps.used else loss)
        if steps.left_out:
            caveats.append(f"left out: {format_list([round(b) for b in steps.left_out])}")
    if critical.too_few_steps:
        losses = format_plural(critical.too_few_steps, "loss", "losses")
        caveats.append(f"{losses} after fewer than 50 steps, or fewer than 5 of warm-up, not used")
    if steps.settle:
        caveats.append(settling_runs(steps.settle))
    return "steps to a loss", "; ".join(numbers) or nothing, _sentences(caveats)


def _over(estimate: CriticalBatch) -> str:
    """The base batch size, where it is part of the definition."""
    return f" over batch {estimate.base_batch:g}" if estimate.base_batch is not None else ""


def format_source(critical: CriticalFinding) -> str:
    """What the steps to the target were read from."""
    count = len(critical.budgets)
    match critical.steps_source:
        case "constant_lr":
            return (
                f"read from runs at constant learning rate at {count} token counts; weights were not averaged, so "
                "noise that averaging or a decay would remove counts against small batch sizes"
            )
        case "decays":
            return f"interpolated between decays that branch off runs at constant learning rate, at {count} budgets"
        case _:
            return f"interpolated between {count} budgets"


def _branch_line(found: Findings, critical: CriticalFinding) -> tuple[str, str, str]:
    name, unit = "branches", found.experiment.unit
    left_out = [
        f"batch {branch.batch:,} after {branch.tokens:,} {unit}: a branch has no finite loss"
        for branch in critical.left_out
    ]
    if not critical.branches:
        missing = "; ".join(left_out) or "no branch was run"
        return name, CANNOT_TELL, f"{missing} (batchlab critical --run)."
    items, length = batch_items(unit, found.experiment.sequence_length), found.experiment.sequence_length
    answer = "; ".join(
        f"{format_branches(b)} {items} after {format_count(b.tokens * length)} {unit}" for b in critical.branches
    )
    pairs = max((verdict.difference.n for b in critical.branches for verdict in b.verdicts), default=0)
    caveats = [
        f"windows of {format_count(critical.window)} {unit}, tolerance {critical.branches[0].tolerance:g} nats, "
        f"n = {format_plural(pairs, 'pair')}"
    ]
    for branch in critical.branches:
        if reason := branch_reason(branch):
            caveats.append(f"after {format_count(branch.tokens * length)}: {reason}")
    return name, answer, _sentences([*caveats, *left_out])


def disagreement(found: Findings) -> tuple[str, ...]:
    """Why the numbers that are known differ, or that there are too few to compare. Nothing is averaged."""
    critical = found.critical
    if critical is None:
        return ()
    series = at_recommended(found)
    full = series is not None and series.parameters == "all"
    noise = (series.latest.value or series.whole.value) if series is not None and full else None
    when = "over the run" if series is None or series.latest.value is None else "late in training"
    twice = critical.steps.twice_samples.value if critical.steps.twice_samples else None
    last = critical.branches[-1] if critical.branches else None
    said = []
    if noise is not None and twice is not None:
        ratio = noise.value / twice.value
        factor = max(ratio, 1 / ratio)
        the_noise, the_other = f"The noise scale {when} ({format_size(noise.value)})", f"({format_size(twice.value)})"
        if factor <= 2:
            said.append(
                f"{the_noise} and {TWICE} {the_other} agree within a factor of {factor:.1f}. With equal curvature in "
                "all directions and plain SGD they would be the same number, and neither holds here."
            )
        else:
            said.append(
                f"{the_noise} is {factor:.1f} times {'below' if ratio < 1 else 'above'} {TWICE} {the_other}. It grows "
                "during training and assumes plain SGD and equal curvature. Steps to a loss count the whole run, its "
                "easy beginning included, with this optimizer, tuned learning rates and decay."
            )
    accepted, lost = (last.at_least, last.below) if last is not None else (None, None)
    if accepted is not None and noise is not None and accepted > (noise.high or math.inf):
        said.append(
            f"Branches accept {format_size(accepted)}, above the noise scale: over a short window that ends in decay, "
            "noise costs less than over a whole run."
        )
    if lost is not None and twice is not None and lost < (twice.low or 0.0):
        said.append(
            f"Branches already lose at {format_size(lost)}, below {TWICE}, where by definition a whole run takes twice "
            "the samples: the tolerance is stricter than that, and a branch's learning rate follows a rule instead of "
            "being tuned."
        )
    if not said:
        numbers = sum(one is not None for one in (noise, twice, last.at_least if last else None))
        if numbers < 2:
            said.append("Fewer than two of the three have a number, so there is nothing to compare yet.")
        else:
            said.append("The numbers do not contradict each other within their intervals, but answer three questions.")
    return tuple(said)


def beyond_warnings(critical: CriticalFinding | None, batch: int) -> tuple[str, ...]:
    """One phrase for each estimate whose critical batch size `batch` exceeds."""
    return tuple(f"batch {batch:,}{_exceeded(estimate)}" for estimate in beyond(critical, batch))


def _exceeded(estimate: CriticalBatch | BranchFinding) -> str:
    match estimate:
        case CriticalBatch():
            name = DEFINITION[estimate.definition]
            if estimate.value is None:
                return f" is above {format_size(estimate.at_most or 0.0)}, the upper limit of {name}"
            base = f" than at batch {estimate.base_batch:g}" if estimate.base_batch else ""
            return f" is above {format_size(estimate.value.value)}, {name}, where a loss takes 20 % more samples{base}"
        case BranchFinding():
            lost = format_size(estimate.below or 0.0)
            return f": a branch at {lost} lost more than {estimate.tolerance:g} nats (branched)"


def schedule_lines(found: Findings) -> tuple[str, ...]:
    """The batch-size schedule that the branches give: when to double, the steps that saves, and the branches' cost."""
    critical = found.critical
    if critical is None or critical.schedule is None:
        return ()
    schedule, length, unit = critical.schedule, found.experiment.sequence_length, found.experiment.unit
    if not schedule.doubles:
        return ("No batch-size schedule: no checkpoint showed that twice the batch size loses nothing.",)
    lines = [
        f"{format_count(stage.from_tokens * length)} to {format_count(stage.to_tokens * length)} {unit}: batch "
        f"{stage.batch:g} at {stage.learning_rate_ratio:.3g} × the learning rate, {stage.steps:,.0f} steps"
        for stage in schedule.stages
    ]
    lines.append(
        f"{100 * schedule.saved:.0f} % fewer steps than at batch {schedule.stages[0].batch:g} throughout. The branches "
        f"took {format_count(schedule.cost_tokens * length)} {unit}, {schedule.cost_ratio:.2g} × one run."
    )
    return tuple(lines)


def cost_lines(found: Findings) -> tuple[str, ...]:
    """What each estimator cost in this study."""
    critical, unit = found.critical, found.experiment.unit
    if critical is None:
        return ()
    lines = ["noise scale: no run of its own; sampled steps of the sweep's runs"]
    for name, effort in (("steps to a loss", critical.steps_effort), ("branches", critical.branch_effort)):
        if effort.runs:
            lines.append(
                f"{name}: {format_plural(effort.runs, 'run')} besides the sweep, {format_count(effort.tokens)} {unit}, "
                f"{effort.seconds:,.0f} s of training"
            )
    return tuple(lines)
