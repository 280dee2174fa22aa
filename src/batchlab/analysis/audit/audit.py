"""All detectors over one table, and what the table supports all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.audit.budget import budget_flaws
from batchlab.analysis.audit.device import device_flaws
from batchlab.analysis.audit.flaw import Flaw, Severity
from batchlab.analysis.audit.losses import best_of_sizes, cells_of, loss_flaws
from batchlab.analysis.audit.table import Entry, Quantity, SweepTable

SETTINGS = (
    *(Quantity.MODEL, Quantity.OPTIMIZER, Quantity.PARAMETERS),
    *(Quantity.SEQUENCE_LENGTH, Quantity.TOKEN_BUDGET, Quantity.TOKENS),
)
"""Quantities that tell groups of rows apart."""


@dataclass(frozen=True, slots=True)
class SizeResult:
    """A batch size at the best of its learning rates: mean loss over `runs` rows; `rates` were tried."""

    global_batch_size: float
    learning_rate: float | None
    loss: float
    runs: int
    rates: int


@dataclass(frozen=True, slots=True)
class Supported:
    """What one group of comparable rows shows: its batch sizes, ascending, and the one with the lowest loss.

    `setting`: what its rows share and rows of other groups do not.
    """

    entries: tuple[Entry, ...]
    sizes: tuple[SizeResult, ...]
    setting: tuple[tuple[Quantity, float | str], ...] = ()

    @property
    def best(self) -> SizeResult:
        return min(self.sizes, key=lambda size: (size.loss, size.global_batch_size))


@dataclass(frozen=True, slots=True)
class Audit:
    """`flaws`: the gravest first. `supported`: one per group of rows that can be compared and have losses."""

    table: SweepTable
    flaws: tuple[Flaw, ...]
    supported: tuple[Supported, ...]

    @property
    def sweeps(self) -> tuple[Supported, ...]:
        """The groups that compare batch sizes. A single row at another budget, for example, is none."""
        return tuple(group for group in self.supported if len(group.sizes) > 1)

    @property
    def worst(self) -> Severity | None:
        return self.flaws[0].severity if self.flaws else None


def audit_table(table: SweepTable) -> Audit:
    """Every flaw that the rows show, those that change the conclusion most first."""
    found = [*budget_flaws(table), *loss_flaws(table), *device_flaws(table)]
    return Audit(table, tuple(sorted(found, key=lambda flaw: -flaw.severity)), tuple(_supported(table)))


def _supported(table: SweepTable) -> list[Supported]:
    found = []
    for group in table.groups:
        cells = cells_of(group)
        best = best_of_sizes(cells)
        sizes = tuple(
            SizeResult(size, rate, loss, len(cells[size, rate]), sum(one == size for one, _ in cells))
            for size, (rate, loss) in sorted(best.items())
        )
        if sizes:
            found.append(Supported(group, sizes, _setting(table, group)))
    return found


def _setting(table: SweepTable, group: Sequence[Entry]) -> tuple[tuple[Quantity, float | str], ...]:
    shared = []
    for quantity in SETTINGS:
        here = {_value(entry, quantity) for entry in group}
        everywhere = {_value(entry, quantity) for entry in table.entries} - {None}
        value = here.pop()
        if not here and value is not None and len(everywhere) > 1:
            shared.append((quantity, value))
    return tuple(shared)


def _value(entry: Entry, quantity: Quantity) -> float | str | None:
    return entry.texts.get(quantity) or entry.numbers.get(quantity)
