"""The section on the critical batch size: estimators and noise scale side by side, and what a loss costs by size."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

from batchlab.analysis.critical.noise_series import NoiseSeries
from batchlab.analysis.critical.steps_from_runs import hours_to_target
from batchlab.analysis.findings import Findings
from batchlab.core.format import format_count, format_hours, format_plural
from batchlab.report.tables import Column, Row, Table
from batchlab.words.critical import (
    DEFINITIONS,
    OVERHEAD,
    TWICE,
    TWICE_STEPS,
    answer_lines,
    at_recommended,
    cost_lines,
    disagreement,
    schedule_lines,
)
from batchlab.words.critical_tables import LOSS_INCREASE, costs_note, why_nothing
from batchlab.words.estimates import format_branches, format_critical, format_noise, format_signs
from batchlab.words.figures.curves import tokens_seen
from batchlab.words.setup import Term
from batchlab.words.units import Units


@dataclass(frozen=True, slots=True)
class CriticalSection:
    """Plain text and tables; `estimators` is empty where the study has no answer yet."""

    estimators: Table
    along: Table
    definitions: tuple[Term, ...]
    disagreement: tuple[str, ...]
    series: Table
    branches: Table
    costs: Table
    costs_note: str
    schedule: tuple[str, ...]
    effort: tuple[str, ...]
    units: str
    nothing: str


WIDTH = 110
"""Characters of a line in a terminal."""


def critical_section(findings: Findings) -> CriticalSection:
    """Everything that the report and the command show."""
    estimators = tuple(Row(line) for line in answer_lines(findings))
    columns = (
        Column("estimator", number=False),
        Column("answer", number=False, wide=True),
        Column("caveat", number=False, wide=True),
    )
    return CriticalSection(
        estimators=Table(columns, estimators),
        along=_along_table(findings),
        definitions=tuple(DEFINITIONS.items()),
        disagreement=disagreement(findings),
        series=_series_table(findings),
        branches=_branches_table(findings),
        costs=_costs_table(findings),
        costs_note=costs_note(findings),
        schedule=schedule_lines(findings),
        effort=cost_lines(findings),
        units=Units.of(findings).name,
        nothing=why_nothing(findings),
    )


def _along_table(findings: Findings) -> Table:
    """Estimators against tokens seen: noise-scale windows and branches in order, then the whole run."""
    units, critical = Units.of(findings), findings.critical
    series = at_recommended(findings)
    of = f"noise scale, batch {series.batch:,}" if series is not None else "noise scale"
    of += " (norm layers)" if series is not None and series.parameters == "norm_layers" else ""
    columns = (
        Column(tokens_seen(units), number=False),
        Column(of),
        Column(OVERHEAD),
        Column(TWICE),
        Column(TWICE_STEPS),
        Column("branched"),
    )
    if critical is None or (series is None and not critical.branches):
        return Table(columns, ())
    length = findings.experiment.sequence_length
    lines: list[tuple[float, tuple[str, ...]]] = []
    for window in series.windows if series is not None else ():
        span = f"{format_count(window.tokens_from)} to {format_count(window.tokens_to)}"
        lines.append((window.tokens_to, (span, format_noise(window), *["–"] * 4)))
    for branch in critical.branches:
        lines.append(
            (branch.tokens * length, (format_count(branch.tokens * length), *["–"] * 4, format_branches(branch)))
        )
    whole = (
        "the whole run",
        format_noise(series.whole) if series is not None else "–",
        format_critical(critical.steps.overhead),
        format_critical(critical.steps.twice_samples),
        format_critical(critical.steps.twice_steps),
        "–",
    )
    return Table(columns, tuple(Row(texts) for _, texts in [*sorted(lines), (math.inf, whole)]))


def _series_table(findings: Findings) -> Table:
    """Noise scale of every batch size's run: first and last window, all of it, and for sign updates."""
    columns = (
        Column("batch"),
        Column("sampled steps"),
        Column("first window"),
        Column("last window"),
        Column("whole run"),
        Column("sign updates"),
        Column("norm layers"),
    )
    series = findings.critical.noise if findings.critical else ()
    return Table(columns, tuple(Row(_series_texts(one)) for one in series))


def _series_texts(one: NoiseSeries) -> tuple[str, ...]:
    first, last = (format_noise(one.windows[0]), format_noise(one.windows[-1])) if len(one.windows) > 1 else ("–", "–")
    inner = format_noise(one.norm_layers) if one.norm_layers else "–"
    whole = format_noise(one.whole) if one.parameters == "all" else "norm layers only"
    return f"{one.batch:,}", f"{one.whole.steps:,}", first, last, whole, format_signs(one.signs), inner


def _branches_table(findings: Findings) -> Table:
    """What each branch lost against the one at the unchanged batch, in pairs."""
    critical = findings.critical
    columns = (
        Column(tokens_seen(Units.of(findings))),
        Column("batch"),
        Column(LOSS_INCREASE),
        Column("verdict", number=False),
    )
    rows = []
    for branch in critical.branches if critical else ():
        for verdict in branch.verdicts:
            lost = verdict.difference
            rows.append(
                Row(
                    (
                        format_count(branch.tokens * findings.experiment.sequence_length),
                        f"{branch.batch * verdict.multiplier:,.0f}",
                        f"{lost.value:.4f} [{lost.low:.4f}, {lost.high:.4f}]",
                        verdict.verdict,
                    )
                )
            )
    return Table(columns, tuple(rows))


def _costs_table(findings: Findings) -> Table:
    """Tokens, steps and hours to one loss at each batch size."""
    units = Units.of(findings)
    columns = (
        Column("batch"),
        Column("steps"),
        Column(units.name),
        Column(f"time on {format_plural(findings.devices, 'device')}"),
    )
    critical = findings.critical
    rows = []
    for point in critical.curve if critical else ():
        hours = hours_to_target(point, findings.throughput, findings.devices, findings.experiment.sequence_length)
        reached = point.steps is not None and point.tokens is not None
        rows.append(
            Row(
                (
                    f"{point.batch:,}",
                    f"{point.steps:,.0f}" if point.steps is not None else "not reached",
                    format_count(point.tokens) if reached and point.tokens is not None else "–",
                    format_hours(hours) if hours is not None else "–",
                )
            )
        )
    return Table(columns, tuple(rows))


def critical_lines(findings: Findings) -> list[str]:
    """The section as lines for a terminal."""
    section = critical_section(findings)
    if not section.estimators.rows:
        return [why_nothing(findings)]
    lines = []
    for name, answer, caveat in answer_lines(findings):
        lines += [*_wrapped(name, answer), *_wrapped("", caveat)]
    lines += [line for text in section.disagreement for line in _wrapped("compared", text)]
    if section.along.rows:
        lines += ["", f"against {section.units} seen", *_columns(section.along)]
    if section.costs.rows:
        lines += ["", *_wrapped("", section.costs_note, 0), *_columns(section.costs)]
    if at_recommended(findings) is not None:
        lines += ["", "noise scale by run", *_columns(section.series)]
    if section.branches.rows:
        lines += ["", "branches (90 % intervals)", *_columns(section.branches)]
    lines += ["", *section.schedule] if section.schedule else []
    lines += ["", *section.effort, ""]
    return [*lines, *(line for name, text in section.definitions for line in _wrapped(name, text))]


def _wrapped(name: str, text: str, indent: int = 17) -> list[str]:
    """`text` in lines of the terminal's usual width, with `name` before the first."""
    first = f"{name:{indent}}" if indent else ""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * indent, break_long_words=False)


def _columns(table: Table) -> list[str]:
    rows = [tuple(column.name for column in table.columns), *(row.texts for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    return ["  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
