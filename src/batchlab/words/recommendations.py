"""The recommendations: what for, what, and why; and why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchlab.analysis.findings import Findings
from batchlab.analysis.verdict import CostsMore, Recommendation, Unresolved
from batchlab.core.format import format_learning_rate, format_plural
from batchlab.words.check import first_failure
from batchlab.words.evidence import headline_caveats
from batchlab.words.phrases import format_warmup
from batchlab.words.reasons import GOALS, describe_reason, soonest_beside
from batchlab.words.sweep import describe_no_best
from batchlab.words.units import Units


@dataclass(frozen=True, slots=True)
class Advice:
    """One recommendation: what for, what, and why."""

    goal: str
    headline: str
    detail: str
    why: str
    caveats: tuple[str, ...] = ()


def advise(recommendation: Recommendation, findings: Findings) -> Advice:
    """The recommendation as the report shows it."""
    layout, units = findings.experiment.per_device(recommendation.layout), Units.of(findings)
    devices = format_plural(layout.data_parallel_size, "device")
    rate = format_learning_rate(recommendation.learning_rate)
    return Advice(
        goal=GOALS[recommendation.goal],
        headline=f"{units.batch(layout.global_batch_size)} at LR {rate}",
        detail=(
            f"micro-batch {layout.micro_batch_size:,} × accum {layout.grad_accum_steps:,} × {devices} = "
            f"{units.step_size(layout)}, {format_warmup(findings, recommendation.warmup_tokens)}"
        ),
        why=sentence(describe_reason(recommendation, units.unit)),
    )


def lead(findings: Findings) -> Advice | None:
    """The recommendation as the banner shows it: with what is sooner, and with its caveats."""
    chosen = findings.recommended
    if chosen is None:
        return None
    advice = advise(chosen, findings)
    reason = chosen.reason
    named = reason.other if isinstance(reason, CostsMore | Unresolved) else None
    why = f"{describe_reason(chosen, findings.experiment.unit)}{soonest_beside(findings, named)}"
    return replace(advice, why=sentence(why), caveats=tuple(map(sentence, headline_caveats(findings))))


def cards(findings: Findings) -> tuple[Advice, ...]:
    """One card per configuration: goals that it serves, and why it serves each."""
    made: dict[str, Advice] = {}
    for item in findings.recommendations:
        advice = advise(item, findings)
        if item is findings.recommended:
            advice = replace(advice, why="")  # it stands in the banner
        if before := made.get(advice.headline):
            why = before.why if advice.why in before.why else f"{before.why} {advice.why}".strip()
            advice = replace(before, goal=f"{before.goal} · {advice.goal}", why=why)
        made[advice.headline] = advice
    return tuple(made.values())


def why_none(findings: Findings) -> str:
    """Why nothing can be recommended."""
    if findings.surface and findings.surface.no_best:
        return describe_no_best(findings.surface.no_best)
    if not findings.runs:
        unfinished = "No training run has finished yet, so there is nothing to recommend."
        return first_failure(findings.checks) or unfinished
    finished = format_plural(len(findings.runs), "training run")
    return f"{finished} finished, which is not enough to recommend a batch size."


def sentence(text: str) -> str:
    """The text as a sentence: a capital first, a full stop last."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""
