"""What was measured while runs trained: quantities of the model's parts, loss spikes, numbers that were not finite, and
how the batch sizes compare at equal tokens, equal steps and equal hours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.dynamics.spikes import find_spikes
from batchlab.analysis.sweep.runs import first_runs
from batchlab.analysis.values import Comparison, DiagnosticsFinding, LossSpike, Run, StepEvent, SurfaceFinding
from batchlab.core.record import MetricRow, Outcome

NON_FINITE = "non_finite/"
BEFORE = 0.1
"""Losses are compared as means over this last share of the tokens, because single rows are mostly noise."""


def diagnostics_finding(runs: Sequence[Run], surface: SurfaceFinding | None) -> DiagnosticsFinding:
    """The diagnostics of all runs; empty where readings were off or are not available."""
    return DiagnosticsFinding(
        snapshots=tuple(sorted({row.tokens for run in runs for row in run.rows if row.diagnostics})),
        parts=_parts(runs),
        spikes=tuple(spike for run in runs for spike in loss_spikes(run)),
        events=tuple(event for run in runs for event in step_events(run)),
        judged_runs=sum(1 for run in runs if len(_highest(run)) >= 5),
        comparisons=comparisons(surface),
    )


def _parts(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    """Quantity → its parts (`blocks.0`, `all`), in the order in which the model has them."""
    parts: dict[str, dict[str, None]] = {}
    for run in runs:
        for row in run.rows:
            for name in row.diagnostics or ():
                quantity, _, part = name.partition("/")
                if not name.startswith(NON_FINITE):
                    parts.setdefault(quantity, {})[part] = None
    return {quantity: tuple(names) for quantity, names in parts.items()}


def loss_spikes(run: Run) -> tuple[LossSpike, ...]:
    """Spikes (`find_spikes`) of the highest training loss since the previous row."""
    curve = _highest(run)
    return tuple(
        LossSpike(run.run_id, curve[s.index][0], curve[s.index][1], curve[s.index][2], s.height, s.length)
        for s in find_spikes([loss for _, _, loss in curve])
    )


def _highest(run: Run) -> list[tuple[int, int, float]]:
    """(step, tokens, highest loss of a step since the previous row)."""
    values = [
        (row.step, row.tokens, row.train_loss if row.train_loss_max is None else row.train_loss_max)
        for row in run.rows
        if row.train_loss is not None
    ]
    return [(step, tokens, loss) for step, tokens, loss in values if math.isfinite(loss)]


def step_events(run: Run) -> tuple[StepEvent, ...]:
    """The first step with numbers that are not finite, and divergence."""
    events = []
    broken = [(row, names) for row in run.rows if (names := not_finite(row))]
    if broken:
        first = min((row for row, _ in broken), key=lambda row: row.step)
        named = tuple(name for row, names in broken if row.step == first.step for name in names)
        events.append(StepEvent(run.run_id, first.step, first.tokens, "not finite", named))
    if run.outcome is Outcome.DIVERGED:
        events.append(StepEvent(run.run_id, run.steps, run.tokens, "diverged"))
    return tuple(events)


def not_finite(row: MetricRow) -> tuple[str, ...]:
    """Names of the row's losses, gradient norm and readings that are NaN or infinite."""
    measured = {"train_loss": row.train_loss, "val_loss": row.val_loss, "grad_norm": row.grad_norm}
    broken = [name for name, value in measured.items() if value is not None and not math.isfinite(value)]
    readings = [name.removeprefix(NON_FINITE) for name in row.diagnostics or () if name.startswith(NON_FINITE)]
    return (*broken, *readings)


def comparisons(surface: SurfaceFinding | None) -> tuple[Comparison, ...]:
    """Training loss of one run per batch size, at its best learning rate, at the furthest point that all of them reach:
    in tokens, in steps, and in hours at the speed measured with exclusive use of the device.
    """
    chosen = first_runs(surface)
    speeds = {row.global_batch_size: row.tokens_per_second for row, _ in chosen}
    tokens_per = {
        "tokens": {row.global_batch_size: 1.0 for row, _ in chosen},
        "steps": {row.global_batch_size: float(row.layout.tokens_per_step) for row, _ in chosen},
        "hours": {size: 3600.0 * speed for size, speed in speeds.items() if speed},
    }
    found = []
    for axis, factors in tokens_per.items():
        runs = {row.global_batch_size: run for row, run in chosen if row.global_batch_size in factors}
        if len(runs) < 2:
            continue
        at = min(run.tokens / factors[size] for size, run in runs.items())
        losses = tuple((size, loss_before(run, at * factors[size])) for size, run in runs.items())
        found.append(Comparison(axis, at, losses))
    return tuple(found)


def loss_before(run: Run, tokens: float) -> float | None:
    """Mean training loss over the last tenth before this many tokens; None where there is no row."""
    inside = [
        row.train_loss
        for row in run.rows
        if row.train_loss is not None and (1 - BEFORE) * tokens < row.tokens <= tokens * (1 + 1e-9)
    ]
    return sum(inside) / len(inside) if inside else None
