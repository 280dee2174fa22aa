"""What the plots of studies side by side say."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.comparison import Side
from batchlab.core.format import format_plural

LOSSES = "Loss against batch size"
CURVES = "The best configurations while they trained"
LOSS_AXIS = "validation loss"
BATCH_AXIS = "global batch size"
NO_LOSS = "No side has a batch size with a loss."
NO_CURVES = "No side has evaluations during training; tables of runs have none."
UNITS_DIFFER = "One side counts tokens and the other samples, so they have no axis in common."


def losses_caption(sides: Sequence[Side]) -> str:
    cells = sum(len(side.cells) for side in sides)
    return f"Each point is the lowest mean loss of a batch size over its learning rates; {cells:,} configurations."


def curves_caption(runs: int) -> str:
    return f"{format_plural(runs, 'run')}: every seed that a loss is quoted from; fainter lines are further seeds."


def tokens_axis(sides: Sequence[Side]) -> str:
    unit = next((side.unit for side in sides if side.unit is not None), None)
    return f"{unit.value if unit else 'tokens'} seen"
