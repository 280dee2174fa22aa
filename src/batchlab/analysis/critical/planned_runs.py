"""Which training runs would settle what steps to a target leave open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Gap = Literal["schedule", "smaller", "larger", "between", "longer", "repeat"]
"""What is missing. `schedule`: no run shows how many steps a loss takes; `smaller`, `larger`: sizes beyond an end;
`between`: there are too few sizes; `longer`: too few reached the target; `repeat`: noise, or learning rates that are
not the best, which takes a sweep with more seeds and not the runs of `critical --run`."""

Schedule = Literal["constant_lr_averaged", "decayed"]

SIZES = 6
"""A plan fills up to so many batch sizes."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that would settle what is unknown; `budget` is relative to the largest that was trained."""

    batch: float
    schedule: Schedule
    budget: float
    gap: Gap


def plan_runs(
    sizes: Sequence[float], gap: Gap, *, schedule: Schedule = "constant_lr_averaged"
) -> tuple[PlannedRun, ...]:
    """The runs that close a gap in what these sizes show. Each still needs its own best learning rate."""
    ordered = sorted(set(sizes)) or [1.0]
    low, high = ordered[0], ordered[-1]
    match gap:
        case "larger":
            return tuple(PlannedRun(high * k, schedule, 1.0, gap) for k in (4, 16))
        case "smaller":
            smaller = dict.fromkeys(max(1.0, low / k) for k in (4, 16))
            return tuple(PlannedRun(b, schedule, 1.0, gap) for b in smaller if b < low)
        case "longer":
            return tuple(PlannedRun(b, schedule, 2.0, gap) for b in ordered)
        case "repeat":
            chosen = dict.fromkeys((low, ordered[len(ordered) // 2], high))
            return tuple(PlannedRun(b, schedule, 1.0, gap) for b in chosen)
        case "between":
            return tuple(PlannedRun(b, schedule, 1.0, gap) for b in _spread(ordered) if b not in ordered)
        case "schedule":
            return tuple(PlannedRun(b, "decayed", 0.25, gap) for b in _spread(ordered))


def _spread(ordered: Sequence[float]) -> tuple[float, ...]:
    """The sizes given, then the middle of gaps of at least 4 ×, widest first, then doublings of the largest size."""
    sizes = list(ordered)
    while len(sizes) < SIZES:
        gaps = [b / a for a, b in itertools.pairwise(sizes)]
        widest = max(gaps, default=0.0)
        if widest >= 4:
            i = gaps.index(widest)
            sizes.insert(i + 1, float(round(math.sqrt(sizes[i] * sizes[i + 1]))))
        else:
            sizes.append(sizes[-1] * 2)
    return tuple(sizes)
