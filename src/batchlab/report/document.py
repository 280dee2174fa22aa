"""The content of a report, in reading order and without a format; report.html and report.md are rendered from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from batchlab.analysis.findings import Findings
from batchlab.report.critical import CriticalSection, critical_section
from batchlab.report.device_tables import probes_table, speed_table
from batchlab.report.dynamics_tables import comparison_table, stability_table
from batchlab.report.figures.build import build_figures
from batchlab.report.figures.curves import time_axis
from batchlab.report.figures.diagnostics import diagnostic_figures
from batchlab.report.figures.figure import Figure
from batchlab.report.memory import MemorySection, memory_section
from batchlab.report.run_tables import runs_table, stable_rates_table
from batchlab.report.sparklines import LossCurves, loss_curves, readings_table
from batchlab.report.tables import Table, cells_table, endings_table, rates_table, results_table, time_constants
from batchlab.report.warmup_table import warmup_table
from batchlab.words.answers import Answers
from batchlab.words.check import describe_check
from batchlab.words.dynamics import training_dynamics
from batchlab.words.failures import Failure
from batchlab.words.guidance import guidance
from batchlab.words.method import method
from batchlab.words.overview import conclusion, summary
from batchlab.words.recommendations import Advice, cards, lead, why_none
from batchlab.words.results import banner, results_note
from batchlab.words.setup import Term, facts, setup
from batchlab.words.story import Story
from batchlab.words.troubleshooting import Trouble, troubles
from batchlab.words.trust import TrustItem
from batchlab.words.units import Units
from batchlab.words.valleys import stable_rates_note


class PasteReady(Protocol):
    """What the report needs from a training plan."""

    @property
    def paste_block(self) -> str:
        """The settings, ready to paste."""
        ...


@dataclass(frozen=True, slots=True)
class Document:
    """All of a report's content. Every text in it is plain text, which the renderers escape.

    `written`: seconds since 1970, only of an unfinished study, whose page reloads itself and says how old it is.
    """

    title: str
    facts: tuple[str, ...]
    partial: str
    written: float | None
    train_with: Advice | None
    why_none: str
    paste_block: str
    trust: tuple[TrustItem, ...]
    unknown: tuple[str, ...]
    summary: tuple[str, ...]
    answers: Answers
    setup: tuple[Term, ...]
    results: Table
    results_note: str
    stable_rates: Table
    stable_rates_note: str
    endings: Table
    warmups: Table
    rates: Table
    rates_note: str
    cells: Table
    runs: Table
    speeds: Table
    probes: Table
    memory: MemorySection
    conclusions: tuple[str, ...]
    dynamics: tuple[str, ...]
    loss_curves: LossCurves
    critical: CriticalSection
    comparison: Table
    stability: Table
    diagnostics: tuple[Figure, ...]
    readings: Table
    time_axis: str
    unit: str
    recommendations: tuple[Advice, ...]
    guidance: tuple[Term, ...]
    failures: tuple[Failure, ...]
    troubles: tuple[Trouble, ...]
    conclusion: tuple[str, ...]
    method: tuple[Term, ...]
    time_constants: Table
    checks: tuple[tuple[str, str, str], ...]
    notes: str | None
    figures: Mapping[str, Figure]


def build_document(
    findings: Findings, story: Story, plan: PasteReady | None, notes: str | None, written: float | None = None
) -> Document:
    """Every sentence, table and plot of the report. `plan` gives the paste-ready block, `notes` is the person's own
    text, `written` the time in seconds since 1970; each may be missing."""
    units = Units.of(findings)
    diagnostics = diagnostic_figures(findings)
    rates, note = rates_table(findings)
    return Document(
        title=findings.experiment.name,
        facts=facts(findings),
        partial=banner(findings),
        written=written if findings.partial else None,
        train_with=lead(findings),
        why_none=why_none(findings),
        paste_block=plan.paste_block if plan else "",
        trust=story.trust,
        unknown=story.unknown,
        summary=summary(findings),
        answers=story.answers,
        setup=setup(findings),
        results=results_table(findings),
        results_note=results_note(findings),
        stable_rates=stable_rates_table(findings),
        stable_rates_note=stable_rates_note(findings),
        endings=endings_table(findings),
        warmups=warmup_table(findings),
        rates=rates,
        rates_note=note,
        cells=cells_table(findings),
        runs=runs_table(findings),
        speeds=speed_table(findings),
        probes=probes_table(findings),
        memory=memory_section(findings),
        conclusions=story.conclusions,
        dynamics=training_dynamics(findings),
        loss_curves=loss_curves(findings),
        critical=critical_section(findings),
        comparison=comparison_table(findings),
        stability=stability_table(findings),
        diagnostics=diagnostics,
        readings=readings_table(findings),
        time_axis=time_axis(findings),
        unit=units.name,
        recommendations=cards(findings),
        guidance=guidance(findings),
        failures=story.failures,
        troubles=troubles(findings),
        conclusion=conclusion(findings),
        method=method(findings),
        time_constants=time_constants(findings),
        checks=tuple((item.name, item.status, describe_check(item)) for item in findings.checks),
        notes=None if notes is None else notes.strip(),
        figures={**build_figures(findings), **{figure.key: figure for figure in diagnostics}},
    )
