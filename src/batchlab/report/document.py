"""What a report says, in reading order and without a format: report.html and report.md are two spellings of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from batchlab.analysis.findings import Findings
from batchlab.core.batch import BatchLayout
from batchlab.core.format import format_count, format_hours, format_learning_rate, format_list, format_plural
from batchlab.report.critical import CriticalSection, critical_section
from batchlab.report.device_tables import probes_table, speed_table
from batchlab.report.dynamics import training_dynamics
from batchlab.report.dynamics_tables import comparison_table, stability_table
from batchlab.report.figures.build import build_figures
from batchlab.report.figures.curves import time_axis
from batchlab.report.figures.diagnostics import diagnostic_figures
from batchlab.report.figures.figure import Figure
from batchlab.report.memory import MemorySection, memory_section
from batchlab.report.method import Term, method, setup, time_constants
from batchlab.report.notes import Block, notes_blocks
from batchlab.report.tables import Table, cells_table, endings_table, rates_table, results_table
from batchlab.report.words import Words, sentence, task_name
from batchlab.words.answers import Answer
from batchlab.words.check import describe_check
from batchlab.words.failures import Failure
from batchlab.words.reasons import GOALS, describe_reason
from batchlab.words.story import Story
from batchlab.words.sweep import describe_no_best
from batchlab.words.trust import TrustItem


class PasteReady(Protocol):
    """What the report needs of a training plan."""

    @property
    def paste_block(self) -> str:
        """The settings, ready to paste."""
        ...


@dataclass(frozen=True, slots=True)
class Advice:
    """One recommendation: what for, what, and why."""

    goal: str
    headline: str
    detail: str
    why: str


@dataclass(frozen=True, slots=True)
class Document:
    """All of a report's content as text; every field is plain text, escaped by whoever writes it out."""

    title: str
    facts: tuple[str, ...]
    partial: str
    train_with: Advice | None
    why_none: str
    paste_block: str
    trust: tuple[TrustItem, ...]
    answers: tuple[Answer, ...]
    unknown: tuple[str, ...]
    setup: tuple[Term, ...]
    results: Table
    results_note: str
    endings: Table
    rates: Table
    cells: Table
    speeds: Table
    probes: Table
    memory: MemorySection
    conclusions: tuple[str, ...]
    dynamics: tuple[str, ...]
    critical: CriticalSection
    comparison: Table
    stability: Table
    diagnostics: tuple[Figure, ...]
    time_axis: str
    unit: str
    recommendations: tuple[Advice, ...]
    failures: tuple[Failure, ...]
    method: tuple[Term, ...]
    time_constants: Table
    checks: tuple[tuple[str, str, str], ...]
    notes: str | None
    notes_blocks: tuple[Block, ...]
    figures: Mapping[str, Figure]


def build_document(findings: Findings, story: Story, plan: PasteReady | None, notes: str | None) -> Document:
    """Every sentence and table of the report, from the findings alone."""
    words = Words.of(findings)
    advice = tuple(
        Advice(
            GOALS[r.goal],
            *_advice(r.layout, r.learning_rate, r.warmup_tokens, words),
            sentence(describe_reason(r.reason)),
        )
        for r in findings.recommendations
    )
    chosen = findings.recommended
    diagnostics = diagnostic_figures(findings)
    return Document(
        title=findings.experiment.name,
        facts=_facts(findings),
        partial=_partial(findings),
        train_with=Advice(
            GOALS[chosen.goal],
            *_advice(chosen.layout, chosen.learning_rate, chosen.warmup_tokens, words),
            sentence(describe_reason(chosen.reason)),
        )
        if chosen
        else None,
        why_none=_why_none(findings),
        paste_block=plan.paste_block if plan else "",
        trust=story.trust,
        answers=story.answers,
        unknown=story.unknown,
        setup=setup(findings),
        results=results_table(findings),
        results_note=_results_note(findings),
        endings=endings_table(findings),
        rates=rates_table(findings),
        cells=cells_table(findings),
        speeds=speed_table(findings),
        probes=probes_table(findings),
        memory=memory_section(findings),
        conclusions=story.conclusions,
        dynamics=training_dynamics(findings),
        critical=critical_section(findings),
        comparison=comparison_table(findings),
        stability=stability_table(findings),
        diagnostics=diagnostics,
        time_axis=time_axis(findings),
        unit=words.units,
        recommendations=advice,
        failures=story.failures,
        method=method(findings),
        time_constants=time_constants(findings),
        checks=tuple((item.name, item.status, describe_check(item)) for item in findings.checks),
        notes=None if notes is None else notes.strip(),
        notes_blocks=notes_blocks(notes or ""),
        figures={**build_figures(findings), **{figure.key: figure for figure in diagnostics}},
    )


def _facts(findings: Findings) -> tuple[str, ...]:
    """The line under the title: what was trained, on what, where."""
    environment = findings.environment
    device = findings.task_info.device
    if environment:
        name = environment.device if environment.device not in ("", device) else environment.processor
        if name:
            device = f"{name} ({device})"
    budget = findings.token_budget
    return (
        task_name(findings.experiment.task),
        f"{findings.task_info.parameter_count:,} parameters",
        findings.task_info.data_source,
        f"{format_count(budget)} {findings.experiment.unit.value} per run" if budget else "budget not set yet",
        f"{device}, {findings.experiment.device.precision}",
    )


def _partial(findings: Findings) -> str:
    if not findings.partial:
        return ""
    done = len(findings.runs)
    of = f" of {findings.planned_runs:,} planned" if findings.planned_runs else ""
    finished = f"{done:,}{of} training {'run is' if done == 1 and not of else 'runs are'} done"
    return f"Partial: {finished}. Everything below is computed from these and may change."


def _why_none(findings: Findings) -> str:
    if findings.surface and findings.surface.no_best:
        return describe_no_best(findings.surface.no_best)
    if not findings.runs:
        return "No training run has finished yet, so there is nothing to recommend."
    return (
        f"{format_plural(len(findings.runs), 'training run')} finished, which is not enough to recommend a batch size."
    )


def _advice(layout: BatchLayout, rate: float, warmup: float, words: Words) -> tuple[str, str]:
    devices = format_plural(layout.data_parallel_size, "device")
    shape = f"micro-batch {layout.micro_batch_size:,} × accum {layout.grad_accum_steps:,} × {devices}"
    return (
        f"{layout.global_batch_size:,} {words.items} at LR {format_learning_rate(rate)}",
        f"{shape} = {words.step_size(layout)}, warm-up {format_count(warmup)} {words.units}",
    )


def _results_note(findings: Findings) -> str:
    surface, words = findings.surface, Words.of(findings)
    if not surface or not surface.rows:
        return ""
    tied = sorted(row.global_batch_size for row in surface.tied)
    parts = ["Every size is judged at its own best learning rate; steps are optimizer updates."]
    if surface.resolved:
        parts.append(
            "Brackets are 95 % intervals from the spread between seeds, "
            f"n = {format_plural(surface.noise_seeds, 'run')} at repeated cells."
        )
    else:
        parts.append("Noise was not measured (n = 1), so no interval is given and no winner is claimed within noise.")
    if len(tied) > 1:
        parts.append(f"Marked sizes, {format_list(tied)}, cannot be told apart from the best.")
    hours = [row.hours for row in surface.rows if row.hours is not None]
    if hours:
        parts.append(
            f"Time is the budget divided by measured {words.units}/s: {format_hours(min(hours))} to {format_hours(max(hours))}."
        )
    return " ".join(parts)
