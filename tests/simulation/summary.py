"""What many histories come to: rows of a table, and how a failing one is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.injections import Injection, injection
from tests.simulation.faults import Hit, Quirk
from tests.simulation.histories import History
from tests.simulation.world import Point


def rows(histories: Sequence[History]) -> list[Injection]:
    """A row for each kind of mishap and each fault of workers, for bystanders, and for all."""
    found = []
    for kind in [*Hit, *(quirk for quirk in Quirk if quirk is not Quirk.NONE)]:
        having = [history for history in histories if history.counts[kind.value]]
        times = sum(history.counts[kind.value] for history in having)
        points = [_name(point) for each in having for mishap, point in each.hits if mishap.hit.value == kind.value]
        found.append(_row(f"simulated: {kind.value}", having, times, points))
    several = [history for history in histories if history.plan.processes > 1]
    found.append(_row("simulated: 2 to 8 processes at once", several, sum(each.plan.processes for each in several), ()))
    hits = [_name(point) for each in histories for _, point in each.hits]
    found.append(_row("simulated: all", histories, sum(sum(each.counts.values()) for each in histories), hits))
    passed = [_name(point) for each in histories for point in each.points]
    found.append(_row("simulated: places that could be hit", histories, 0, passed))
    return found


def _row(what: str, histories: Sequence[History], times: int, points: Iterable[str]) -> Injection:
    failed = sum(bool(history.wrong) for history in histories)
    refused = sum(bool(history.refusals and not history.wrong) for history in histories)
    return injection(what, times, histories=len(histories), refused=refused, failed=failed, points=points)


def _name(point: Point) -> str:
    return " ".join(point)


def failures(histories: Sequence[History]) -> str:
    """What went wrong, and the command that repeats it."""
    return "\n".join(
        f"seed {history.plan.seed}: {'; '.join(history.wrong)}\n{history.plan}\n"
        f"again, with every operation: PYTHONPATH=src python -m tests.simulation --seed {history.plan.seed}"
        for history in histories
        if history.wrong
    )
