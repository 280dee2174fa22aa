"""How one run trained, in a few values: loss spikes, numbers that were not finite, what was read and when.

A study has too many rows to keep. These values are made of each run's rows once, and the rows are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from batchlab.analysis.dynamics.spikes import LEAST_POINTS, find_spikes
from batchlab.analysis.values import Course, LossSpike, StepEvent
from batchlab.storage.metrics import RowValues

NON_FINITE = "non_finite/"


def course_of(run_id: str, rows: Sequence[RowValues]) -> Course:
    """The course of one run."""
    snapshots = [row for row in rows if row.get("diagnostics")]
    readings = dict.fromkeys(name for row in snapshots for name in row["diagnostics"] or ())
    curve = _highest(rows)
    return Course(
        snapshots=tuple(row["tokens"] for row in snapshots),
        readings=tuple(name for name in readings if not name.startswith(NON_FINITE)),
        spikes=_spikes(run_id, curve),
        broken=_first_broken(run_id, rows),
        judged=len(curve) >= LEAST_POINTS,
    )


def _highest(rows: Iterable[RowValues]) -> list[tuple[int, int, float]]:
    """(step, tokens, highest loss of a step since the previous row)."""
    curve = []
    for row in rows:
        loss, highest = row.get("train_loss"), row.get("train_loss_max")
        if loss is None:
            continue
        if highest is not None:
            loss = highest
        if math.isfinite(loss):
            curve.append((row["step"], row["tokens"], loss))
    return curve


def _spikes(run_id: str, curve: Sequence[tuple[int, int, float]]) -> tuple[LossSpike, ...]:
    """Spikes (`find_spikes`) of the highest training loss since the previous row."""
    return tuple(
        LossSpike(run_id, curve[s.index][0], curve[s.index][1], curve[s.index][2], s.height, s.length)
        for s in find_spikes([loss for _, _, loss in curve])
    )


def _first_broken(run_id: str, rows: Iterable[RowValues]) -> StepEvent | None:
    """The first step with numbers that are not finite. Rows of one step may come in any order."""
    broken = [(row, names) for row in rows if not _surely_finite(row) and (names := not_finite(row))]
    if not broken:
        return None
    first = min((row for row, _ in broken), key=lambda row: row["step"])
    named = tuple(name for row, names in broken if row["step"] == first["step"] for name in names)
    return StepEvent(run_id, first["step"], first["tokens"], "not finite", named)


def _surely_finite(row: RowValues) -> bool:
    """Whether nothing in a row can be NaN or infinite; almost every row ends here."""
    total = (row.get("train_loss") or 0.0) + (row.get("val_loss") or 0.0) + (row.get("grad_norm") or 0.0)
    return math.isfinite(total) and not row.get("diagnostics")


def not_finite(row: RowValues) -> tuple[str, ...]:
    """Names of the row's losses, gradient norm and readings that are NaN or infinite."""
    train_loss, val_loss, grad_norm = row.get("train_loss"), row.get("val_loss"), row.get("grad_norm")
    broken = [
        name
        for name, value in (("train_loss", train_loss), ("val_loss", val_loss), ("grad_norm", grad_norm))
        if value is not None and not math.isfinite(value)
    ]
    readings = [name.removeprefix(NON_FINITE) for name in row.get("diagnostics") or () if name.startswith(NON_FINITE)]
    return (*broken, *readings)
