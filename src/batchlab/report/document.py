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
from batchlab.report.sparklines import LossCurves, loss_curves, readings_table
from batchlab.report.tables import Table, cells_table, endings_table, rates_table, results_table, time_constants
from batchlab.report.warmup_table import warmup_table
from batchlab.words.answers import Answer
from batchlab.words.check import describe_check
from batchlab.words.dynamics import training_dynamics
from batchlab.words.failures import Failure
from batchlab.words.method import method
from batchlab.words.recommendations import Advice, cards, lead, why_none
from batchlab.words.results import banner, results_note
from batchlab.words.setup import Term, facts, setup
from batchlab.words.story import Story
from batchlab.words.trust import TrustItem
from batchlab.words.units import Units


class PasteReady(Protocol):
    """What the report needs from a training plan."""

    @property
    def paste_block(self) -> str:
        """The settings, ready to paste."""
        ...


@dataclass(frozen=True, slots=True)
class Document:
    """All of a report's content. Every text in it is plain text, which the renderers escape."""

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
    warmups: Table
    rates: Table
    rates_note: str
    cells: Table
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
    failures: tuple[Failure, ...]
    method: tuple[Term, ...]
    time_constants: Table
    checks: tuple[tuple[str, str, str], ...]
    notes: str | None
    figures: Mapping[str, Figure]


def build_document(findings: Findings, story: Story, plan: PasteReady | None, notes: str | None) -> Document:
    """Every sentence, table and plot of the report. `plan` gives the paste-ready block and `notes` is the
    person's own text; either may be missing."""
    units = Units.of(findings)
    diagnostics = diagnostic_figures(findings)
    rates, note = rates_table(findings)
    return Document(
        title=findings.experiment.name,
        facts=facts(findings),
        partial=banner(findings),
        train_with=lead(findings),
        why_none=why_none(findings),
        paste_block=plan.paste_block if plan else "",
        trust=story.trust,
        answers=story.answers,
        unknown=story.unknown,
        setup=setup(findings),
        results=results_table(findings),
        results_note=results_note(findings),
        endings=endings_table(findings),
        warmups=warmup_table(findings),
        rates=rates,
        rates_note=note,
        cells=cells_table(findings),
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
        failures=story.failures,
        method=method(findings),
        time_constants=time_constants(findings),
        checks=tuple((item.name, item.status, describe_check(item)) for item in findings.checks),
        notes=None if notes is None else notes.strip(),
        figures={**build_figures(findings), **{figure.key: figure for figure in diagnostics}},
    )
