"""What an audit found, in words: what is wrong, the arithmetic that shows it, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.audit.against import Reproduction
from batchlab.analysis.audit.audit import Audit, SizeResult, Supported
from batchlab.analysis.audit.flaw import Flaw, Severity
from batchlab.analysis.audit.table import SweepTable
from batchlab.analysis.audit.unchecked import Check, unchecked
from batchlab.core.format import (
    format_count,
    format_learning_rate,
    format_list,
    format_loss,
    format_percent,
    format_plural,
)
from batchlab.words.audit_flaws import describe_flaw

SHOWN_LINES = 8
"""Lines that are listed one by one."""


@dataclass(frozen=True, slots=True)
class AuditNote:
    """One finding as a reader meets it. `where`: its lines in the file; `arithmetic`: the numbers that show it."""

    kind: str
    severity: str
    what: str
    where: str
    arithmetic: str
    remedy: str


def audit_notes(audit: Audit) -> tuple[AuditNote, ...]:
    """Every finding in words, the gravest first. What holds of several groups of rows alike is told once."""
    alike: dict[str, list[Flaw]] = {}
    for flaw in audit.flaws:
        alike.setdefault(type(flaw).__name__ if flaw.severity is Severity.NOTE else repr(flaw), []).append(flaw)
    return tuple(_note(flaws) for flaws in alike.values())


def _note(flaws: Sequence[Flaw]) -> AuditNote:
    first = flaws[0]
    what, arithmetic, remedy = describe_flaw(first)
    if len(flaws) > 1:
        arithmetic += f" The same holds for {format_plural(len(flaws) - 1, 'other group')} of rows."
    return AuditNote(type(first).__name__, first.severity.name.lower(), what, _where(flaws), arithmetic, remedy)


def _where(flaws: Sequence[Flaw]) -> str:
    lines = sorted({line for flaw in flaws for line in flaw.lines})
    if len(lines) > SHOWN_LINES:
        return f"{len(lines):,} lines from {lines[0]:,} to {lines[-1]:,}"
    return f"line{'s' if len(lines) > 1 else ''} {format_list([f'{line:,}' for line in lines])}" if lines else ""


def describe_supported(supported: Supported) -> str:
    """What the rows show in spite of everything, as one sentence that claims no more than that."""
    best, count = supported.best, len(supported.sizes)
    if count == 1:
        return f"Only batch {best.global_batch_size:,.0f} has a loss, {format_loss(best.loss)}."
    return (
        f"Lowest loss of {format_plural(count, 'batch size')}: {format_loss(best.loss)} at {describe_size(best)}, "
        f"{format_plural(best.runs, 'run')}."
    )


_CHECKS = {
    Check.TOKENS: "steps against tokens",
    Check.LEARNING_RATE: "learning rates",
    Check.MEMORY: "memory against the device's",
    Check.OPTIMIZER_STATE: "the optimizer's memory",
}


def describe_unchecked(table: SweepTable) -> str:
    """What the table lacks columns for, and how to add it; empty where everything was checked."""
    missing = [f"{_CHECKS[each.check]} ({', '.join(each.lacks)})" for each in unchecked(table)]
    if not missing:
        return ""
    return f"{'; '.join(missing)}: no column has these. --given NAME=VALUE adds what holds for every row."


def describe_reproduction(found: Reproduction) -> tuple[str, ...]:
    """Which numbers of the published table the other one reproduces, one sentence each."""
    if not found.matched:
        return ("No configuration of the published table is in the other one, so nothing can be compared.",)
    lines = []
    for number in found.numbers:
        name = number.quantity.value.replace("_", " ")
        where = format_plural(number.pairs, "configuration")
        if number.pairs == 1:
            lines.append(f"{name}: {format_change(number.furthest)} at batch {number.at_batch:,.0f}.")
        elif format_change(number.furthest) == "equal":
            lines.append(f"{name}: equal in {where}.")
        else:
            lines.append(
                f"{name}: {format_change(number.median)} in the median of {where}, at most "
                f"{format_change(number.furthest)} (batch {number.at_batch:,.0f})."
            )
    lines.append(f"Largest batch size: published {_limit(found.published_limit)}; here {_limit(found.own_limit)}.")
    if found.unmatched:
        lines.append(f"{format_plural(found.unmatched, 'published configuration')} not run here.")
    return tuple(lines)


def format_change(share: float) -> str:
    """`+3 %`, `−0.4 %`, `equal`."""
    text = format_percent(share)
    return "equal" if text == "0 %" else text if text.startswith("−") else f"+{text}"


def _limit(limit: tuple[float | None, float | None]) -> str:
    ran, failed = limit
    text = "none ran" if ran is None else f"{ran:,.0f} ran"
    return text if failed is None else f"{text}, {failed:,.0f} ran out of memory"


def describe_setting(supported: Supported) -> str:
    """What tells this group of rows from others: `parameters 215M, tokens 4B`."""
    parts = [f"{quantity.value.replace('_', ' ')} {_short(value)}" for quantity, value in supported.setting]
    return ", ".join(parts)


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else format_count(value)


def describe_size(size: SizeResult) -> str:
    """`batch 32, LR 1.0e-3`."""
    rate = "" if size.learning_rate is None else f", LR {format_learning_rate(size.learning_rate)}"
    return f"batch {size.global_batch_size:,.0f}{rate}"


def describe_verdict(audit: Audit) -> str:
    """The first line: how much the table's conclusions can be relied on."""
    rows = format_plural(len(audit.table.entries), "row")
    found = {severity: sum(flaw.severity is severity for flaw in audit.flaws) for severity in Severity}
    counts = [
        format_plural(found[severity], name)
        for severity, name in ((Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.NOTE, "note"))
        if found[severity]
    ]
    if not counts:
        return f"{rows}: nothing found that contradicts the table or its conclusions."
    told = format_list(counts)
    if found[Severity.ERROR]:
        return f"{rows}, {told}: what this table seems to show does not follow from it."
    if found[Severity.WARNING]:
        return f"{rows}, {told}: the numbers agree with each other; the conclusion may still change."
    return f"{rows}, {told}: the numbers agree with each other."
