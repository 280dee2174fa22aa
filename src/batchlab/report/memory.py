"""The section on memory: what fits, bytes by category and phase, memory variants."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.analysis.capacity.capacity import Capacity, MemoryVariant
from batchlab.analysis.findings import Findings
from batchlab.core.format import NONE, format_bytes
from batchlab.report.tables import Column, Row, Table
from batchlab.words.capacity import capacity_terms, split
from batchlab.words.memory import trace_note
from batchlab.words.setup import Term
from batchlab.words.units import Units


@dataclass(frozen=True, slots=True)
class MemorySection:
    """Plain text and tables, each empty where nothing is known."""

    answer: tuple[Term, ...]
    categories: Table
    categories_note: str
    variants: Table


def memory_section(findings: Findings) -> MemorySection:
    """What the report says of memory besides the plot of the probes."""
    found = findings.memory
    if found is None:
        return MemorySection((), Table(()), "", Table(()))
    return MemorySection(
        answer=_merged(capacity_terms(found)),
        categories=_categories(found),
        categories_note=trace_note(found),
        variants=_variants(found, Units.of(findings)),
    )


def _merged(terms: list[Term]) -> tuple[Term, ...]:
    """One term per label: several terminal lines with the same label are one paragraph here."""
    texts: dict[str, list[str]] = {}
    for label, text in terms:
        texts.setdefault("fits" if label == "FITS" else label, []).append(" ".join(text.split()))
    return tuple((label, "; ".join(parts)) for label, parts in texts.items())


def _categories(found: Capacity) -> Table:
    """The peak of each phase, by category of tensor."""
    phases = found.phases
    top = max(phases, key=lambda phase: phase.total_bytes, default=None)
    names = [name for name, _ in split(phases[0])] if phases else []
    columns = (Column("phase", number=False), *map(Column, names), Column("peak"))
    rows = (
        Row(
            (
                phase.phase,
                *(format_bytes(held) if held else NONE for _, held in split(phase)),
                format_bytes(phase.total_bytes),
            ),
            "peak" if phase is top else "",
        )
        for phase in phases
    )
    return Table(columns, tuple(rows))


def _variants(found: Capacity, units: Units) -> Table:
    columns = (
        Column("variant", number=False),
        Column("largest micro-batch"),
        Column("status", number=False),
        Column(f"{units.name}/s"),
        Column("at size"),
        Column("remark", number=False, wide=True),
    )
    return Table(columns, tuple(Row(_variant(variant)) for variant in found.variants))


def _variant(variant: MemoryVariant) -> tuple[str, ...]:
    size = variant.max_micro_batch_size
    speed = variant.tokens_per_second
    return (
        variant.name,
        f"{size:,}" if size else NONE,
        variant.status if size else NONE,
        f"{speed:,.0f}" if speed is not None else NONE,
        f"{variant.measured_at:,}" if variant.measured_at is not None else NONE,
        variant.why_not or ("" if size else "nothing fits"),
    )
