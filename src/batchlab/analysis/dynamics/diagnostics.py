"""What was measured while runs trained: quantities of the model's parts, loss spikes, numbers that were not finite, and
how the batch sizes compare at equal tokens, equal steps and equal hours.
"""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.sweep.runs import first_runs
from batchlab.analysis.values import Comparison, DiagnosticsFinding, Run, StepEvent, SurfaceFinding
from batchlab.core.record import Outcome

BEFORE = 0.1
"""Losses are compared as means over this last share of the tokens, because single rows are mostly noise."""


def diagnostics_finding(runs: Sequence[Run], surface: SurfaceFinding | None) -> DiagnosticsFinding:
    """The diagnostics of all runs; empty where readings were off or are not available."""
    return DiagnosticsFinding(
        snapshots=tuple(sorted({tokens for run in runs for tokens in run.course.snapshots})),
        parts=_parts(runs),
        spikes=tuple(spike for run in runs for spike in run.course.spikes),
        events=tuple(event for run in runs for event in step_events(run)),
        judged_runs=sum(run.course.judged for run in runs),
        comparisons=comparisons(surface),
    )


def _parts(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    """Quantity → its parts (`blocks.0`, `all`), in the order in which the model has them."""
    parts: dict[str, dict[str, None]] = {}
    for run in runs:
        for name in run.course.readings:
            quantity, _, part = name.partition("/")
            parts.setdefault(quantity, {})[part] = None
    return {quantity: tuple(names) for quantity, names in parts.items()}


def step_events(run: Run) -> tuple[StepEvent, ...]:
    """The first step with numbers that are not finite, and divergence."""
    events = [run.course.broken] if run.course.broken is not None else []
    if run.outcome is Outcome.DIVERGED:
        events.append(StepEvent(run.run_id, run.steps, run.tokens, "diverged"))
    return tuple(events)


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
