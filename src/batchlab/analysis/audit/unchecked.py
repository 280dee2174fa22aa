"""What a table does not say enough to be audited for. Facts that stand beside it in prose can be given as options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from batchlab.analysis.audit.table import Quantity, SweepTable


class Check(StrEnum):
    """What could be checked."""

    TOKENS = "tokens"
    LEARNING_RATE = "learning_rate"
    MEMORY = "memory"
    OPTIMIZER_STATE = "optimizer_state"


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A check that was not made. `lacks`: quantities that no row has."""

    check: Check
    lacks: tuple[Quantity, ...]


_NEEDS: dict[Check, tuple[tuple[Quantity, ...], ...]] = {
    Check.TOKENS: (
        (Quantity.STEPS,),
        (Quantity.TOKENS, Quantity.TOKEN_BUDGET),
        (Quantity.SEQUENCE_LENGTH, Quantity.TOKENS_PER_STEP),
    ),
    Check.LEARNING_RATE: ((Quantity.LEARNING_RATE,),),
    Check.MEMORY: ((Quantity.PEAK_BYTES,), (Quantity.MEMORY_LIMIT,)),
    Check.OPTIMIZER_STATE: ((Quantity.OPTIMIZER_BYTES,), (Quantity.PARAMETERS,), (Quantity.OPTIMIZER,)),
}
"""One of each group is enough; where several are, the first is named."""


def unchecked(table: SweepTable) -> tuple[Unchecked, ...]:
    """The checks that the table lacks a quantity for."""
    found = []
    for check, needs in _NEEDS.items():
        lacks = tuple(group[0] for group in needs if not table.present.intersection(group))
        if lacks:
            found.append(Unchecked(check, lacks))
    return tuple(found)
