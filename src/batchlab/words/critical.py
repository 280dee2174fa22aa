"""What the three estimators of the critical batch size say, in sentences: definition, answer, doubt, disagreement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.critical.branches import BranchFinding
from batchlab.analysis.critical.finding import CriticalFinding
from batchlab.analysis.critical.noise_scale import NoiseScale, SignNoiseScale
from batchlab.analysis.critical.noise_series import NoiseSeries
from batchlab.analysis.critical.steps_to_target import REPEATS, CriticalBatch
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Interval
from batchlab.core.format import batch_items, format_count, format_list, format_loss, format_plural
from batchlab.words.gradient_samples import why_no_gradient_samples

DEFINITIONS = {
    "noise scale": "tr Σ / |G|²: the batch whose gradient noise is as large as the gradient, from the sweep's own "
    "runs. It is a critical batch size only for plain SGD on a loss equally curved in all directions.",
    "steps to a loss": "From how many steps and samples each size needs to one loss. 2x: both are twice their least. "
    "20pct: 20 % more samples than the smallest size fitted. On one curve the first is three to five times the second.",
    "branches": "branched: the largest multiple of the batch that, going on from one checkpoint for a window, loses no "
    "more than a tolerance. It answers for that moment, window and learning-rate rule.",
}


def format_size(value: float) -> str:
    """Three digits; whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_sizes(interval: Interval) -> str:
    """`41 [28, 66]`."""
    if interval.low is None or interval.high is None:
        return format_size(interval.value)
    return f"{format_size(interval.value)} [{format_size(interval.low)}, {format_size(interval.high)}]"


def format_noise(found: NoiseScale) -> str:
    if found.value is not None:
        return format_sizes(found.value)
    return f"at least {format_size(found.at_least)}" if found.at_least is not None else "undetermined"


def format_signs(found: SignNoiseScale | None) -> str:
    """The bracket of the sign-update variant."""
    if found is None:
        return "–"
    if found.low is None:
        return "undetermined"
    return (
        f"at least {format_size(found.low)}"
        if found.high is None
        else f"{format_size(found.low)} – {format_size(found.high)}"
    )


def format_critical(found: CriticalBatch | None) -> str:
    if found is None:
        return "cannot tell"
    if found.value is not None:
        return format_sizes(found.value)
    limits = []
    if found.at_least is not None:
        limits.append(f"at least {format_size(found.at_least)}")
    if found.at_most is not None:
        limits.append(f"at most {format_size(found.at_most)}")
    return ", ".join(limits) or "cannot tell"


def format_branches(found: BranchFinding) -> str:
    if found.status == "cannot_tell":
        return "cannot tell"
    at_least = f"at least {format_size(found.at_least)}" if found.at_least is not None else ""
    below = f"below {format_size(found.below)}" if found.below is not None else ""
    return " and ".join(text for text in (at_least, below) if text)


def headline(found: Findings) -> str:
    """All that has a number, each by its definition: `noise scale 41 [28, 66] · 20pct 22 [15, 31]`; else empty."""
    critical = found.critical
    if critical is None:
        return ""
    parts = []
    series = at_recommended(found)
    if series is not None and series.latest.value is not None:
        of = " of norm layers" if series.parameters == "norm_layers" else ""
        parts.append(f"noise scale{of} {format_noise(series.latest)} late in training")
    for definition in (critical.steps.twice, critical.steps.overhead):
        if definition is not None and format_critical(definition) != "cannot tell":
            parts.append(f"{definition.definition} {format_critical(definition)}")
    if critical.steps.overhead is None and critical.steps.read_off is not None:
        parts.append(f"20pct {format_size(critical.steps.read_off)}, read off without the curve")
    if critical.branches and critical.branches[-1].status != "cannot_tell":
        parts.append(f"branched {format_branches(critical.branches[-1])}")
    return " · ".join(parts)


def measured(found: Findings) -> bool:
    """Whether the records hold anything to estimate it from, enough or not."""
    critical = found.critical
    return critical is not None and bool(critical.noise or critical.branches or critical.curve)


def at_recommended(found: Findings) -> NoiseSeries | None:
    """The noise scale of the recommended batch's run; where it has none, of the run with the most sampled steps."""
    critical = found.critical
    if critical is None or not critical.noise:
        return None
    chosen = found.recommended.layout.global_batch_size if found.recommended else None
    exact = [series for series in critical.noise if series.batch == chosen and series.whole.status != "undetermined"]
    return exact[0] if exact else max(critical.noise, key=lambda series: series.whole.steps)


def answer_lines(found: Findings) -> tuple[tuple[str, str, str], ...]:
    """(estimator, answer, doubt) for each of the three."""
    critical = found.critical
    if critical is None:
        return ()
    return (_noise_line(found, critical), _steps_line(found, critical), _branch_line(found, critical))


def _noise_line(found: Findings, critical: CriticalFinding) -> tuple[str, str, str]:
    name = "noise scale"
    series = at_recommended(found)
    if series is None:
        why = (
            "; ".join(why_no_gradient_samples(*reasons) for reasons in critical.no_noise)
            or "the runs logged no gradient norms (noise.points is 0, or they are too short)"
        )
        return name, "cannot tell", _sentences([why])
    items = batch_items(found.experiment.unit, found.experiment.sequence_length)
    latest = series.latest
    of = " (norm layers alone)" if series.parameters == "norm_layers" else ""
    answer = f"{format_noise(latest)} {items}{of} at the end of the run at batch {series.batch:,}"
    if len(series.windows) > 1 and series.windows[0].value is not None:
        answer += f", {format_noise(series.windows[0])} at its beginning"
    answer += f"; for sign updates {format_signs(series.signs)}" if series.signs is not None else ""
    doubts = [f"from {format_plural(series.whole.steps, 'sampled step')}"]
    if latest.reason:
        doubts.append(latest.reason.rstrip("."))
    if latest.overflowed or series.whole.overflowed:
        doubts.append(f"{format_plural(series.whole.overflowed, 'step')} overflowed and left out")
    if series.norm_layers is not None:
        doubts.append(_norm_layers(series, series.norm_layers))
    return name, answer, _sentences(doubts)


def _sentences(phrases: Sequence[str]) -> str:
    """Each phrase as a sentence of its own."""
    return " ".join(f"{phrase[0].upper()}{phrase[1:].rstrip('.')}." for phrase in phrases)


def _norm_layers(series: NoiseSeries, norm_layers: NoiseScale) -> str:
    """What norm layers alone are worth in this run."""
    if series.parameters == "all":
        times = f", to be multiplied by {series.norm_layer_ratio:.2f} here" if series.norm_layer_ratio else ""
        return f"over the whole run, norm layers alone would say {format_noise(norm_layers)}{times}"
    if series.norm_layer_ratio is None:
        return "norm layers alone are another noise scale, and no sampled steps tell what to multiply it by"
    return (
        f"to be multiplied by {series.norm_layer_ratio:.2f}, as {format_plural(series.calibrated, 'sampled step')} that "
        "looked at all parameters too say"
    )


def _steps_line(found: Findings, critical: CriticalFinding) -> tuple[str, str, str]:
    steps = critical.steps
    name = "steps to a loss"
    items = batch_items(found.experiment.unit, found.experiment.sequence_length)
    numbers = [f"{d.definition} {format_critical(d)} {items}" for d in (steps.twice, steps.overhead) if d is not None]
    if steps.read_off is not None:
        numbers.append(f"20pct read off between the sizes {format_size(steps.read_off)}")
    answer = "; ".join(numbers) or {"none_inside": "none inside the sizes measured"}.get(steps.status, "cannot tell")
    doubts = [steps.reason.rstrip(".")] if steps.reason else []
    if critical.target is not None:
        loss = f"to loss {format_loss(critical.target)}, {format_source(critical)}"
        doubts.append(f"{loss}; fitted at batch {format_list([round(b) for b in steps.used])}" if steps.used else loss)
        if steps.left_out:
            doubts.append(f"left out: {format_list([round(b) for b in steps.left_out])}")
    if critical.too_few_steps:
        losses = format_plural(critical.too_few_steps, "loss", "losses")
        doubts.append(f"{losses} from under 50 steps, or under 5 of warm-up, not used")
    if steps.settle:
        runs = "" if any(run.why == REPEATS for run in steps.settle) else " (batchlab critical --run)"
        wanted = [
            f"batch {format_list([f'{run.batch:g}' for run in steps.settle if run.why == why])} {why}"
            for why in dict.fromkeys(run.why for run in steps.settle)
        ]
        doubts.append(f"what would settle it: {'; '.join(wanted)}{runs}")
    return name, answer, _sentences(doubts)


def format_source(critical: CriticalFinding) -> str:
    """What the steps to the target were read from."""
    count = len(critical.budgets)
    match critical.steps_source:
        case "constant_lr":
            return (
                f"read from runs at constant learning rate at {count} token counts; weights were not averaged, so "
                "noise that an average or a decay takes out counts against small batches"
            )
        case "decays":
            return f"interpolated between decays out of runs at constant learning rate, at {count} budgets"
        case _:
            return f"interpolated between {count} budgets"


def _branch_line(found: Findings, critical: CriticalFinding) -> tuple[str, str, str]:
    name, unit = "branches", found.experiment.unit
    if not critical.branches:
        missing = "; ".join(critical.left_out) or "no branch was run"
        return name, "cannot tell", f"{missing} (batchlab critical --run)."
    items, length = batch_items(unit, found.experiment.sequence_length), found.experiment.sequence_length
    answer = "; ".join(
        f"{format_branches(b)} {items} after {format_count(b.tokens * length)} {unit}" for b in critical.branches
    )
    pairs = max((verdict.difference.n for b in critical.branches for verdict in b.verdicts), default=0)
    doubts = [
        f"windows of {format_count(critical.window)} {unit}, tolerance {critical.branches[0].tolerance:g} nats, "
        f"n = {format_plural(pairs, 'pair')}"
    ]
    for branch in critical.branches:
        if branch.reason:
            more = f"; {branch.pairs_needed} pairs would tell" if branch.pairs_needed else ""
            doubts.append(f"after {format_count(branch.tokens * length)}: {branch.reason.rstrip('.')}{more}")
    return name, answer, _sentences([*doubts, *critical.left_out])


def disagreement(found: Findings) -> tuple[str, ...]:
    """Why the numbers that are there differ, or that there are too few to compare. Nothing is averaged."""
    critical = found.critical
    if critical is None:
        return ()
    series = at_recommended(found)
    full = series is not None and series.parameters == "all"
    noise = (series.latest.value or series.whole.value) if series is not None and full else None
    when = "over the run" if series is None or series.latest.value is None else "late in training"
    twice = critical.steps.twice.value if critical.steps.twice else None
    last = critical.branches[-1] if critical.branches else None
    said = []
    if noise is not None and twice is not None:
        ratio = noise.value / twice.value
        if max(ratio, 1 / ratio) <= 2:
            said.append(
                f"The noise scale {when} ({format_size(noise.value)}) and the 2x critical batch ({format_size(twice.value)}) "
                f"agree within a factor of {max(ratio, 1 / ratio):.1f}; with equal curvature in all directions and "
                "plain SGD they would be one number, and neither holds here."
            )
        else:
            way = "below" if ratio < 1 else "above"
            said.append(
                f"The noise scale {when} ({format_size(noise.value)}) is {max(ratio, 1 / ratio):.1f} times {way} the 2x "
                f"critical batch ({format_size(twice.value)}). It grows during training and is that of plain SGD and of "
                "equal curvature; steps to a loss are a whole run's, its cheap beginning included, with this "
                "optimizer, its learning rates tuned, and decay."
            )
    accepted, lost = (last.at_least, last.below) if last is not None else (None, None)
    if accepted is not None and noise is not None and accepted > (noise.high or math.inf):
        said.append(
            f"Branches accept {format_size(accepted)}, above the noise scale: over a short window that ends in decay, "
            "noise costs less than over a whole run."
        )
    if lost is not None and twice is not None and lost < (twice.low or 0.0):
        said.append(
            f"Branches already lose at {format_size(lost)}, below the 2x critical batch, where by definition a whole run "
            "takes twice the samples: the tolerance is stricter than that, and a branch's learning rate follows a rule "
            "instead of being tuned."
        )
    if not said:
        numbers = sum(one is not None for one in (noise, twice, last.at_least if last else None))
        if numbers < 2:
            said.append("Fewer than two of the three have a number, so there is nothing to compare yet.")
        else:
            said.append(
                "The numbers do not contradict each other within their intervals; they still answer three questions."
            )
    return tuple(said)


def schedule_lines(found: Findings) -> tuple[str, ...]:
    """The batch-size schedule that the branches give: when to double, what that saves, what finding it out cost."""
    critical = found.critical
    if critical is None or critical.schedule is None:
        return ()
    schedule, length, unit = critical.schedule, found.experiment.sequence_length, found.experiment.unit
    if schedule.reason:
        return (f"No batch-size schedule: {schedule.reason}",)
    lines = [
        f"{format_count(stage.from_tokens * length)} to {format_count(stage.to_tokens * length)} {unit}: batch "
        f"{stage.batch:g} at {stage.learning_rate_ratio:.3g} × the learning rate, {stage.steps:,.0f} steps"
        for stage in schedule.stages
    ]
    lines.append(
        f"{schedule.saved:.0%} fewer steps than at batch {schedule.stages[0].batch:g} throughout; the branches took "
        f"{format_count(schedule.cost_tokens * length)} {unit}, {schedule.cost_ratio:.2g} × one run."
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
                f"{name}: {format_plural(effort.runs, 'run')} beside the sweep, {format_count(effort.tokens)} {unit}, "
                f"{effort.seconds:,.0f} s of training"
            )
    return tuple(lines)
