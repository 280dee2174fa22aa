"""What steps to one loss say about the critical batch size, by either definition, or why they do not say it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Literal

from batchlab.analysis.critical.hyperbola import Hyperbola, Misfit
from batchlab.analysis.critical.planned_runs import PlannedRun
from batchlab.analysis.values import Interval

Status = Literal["found", "at_least", "at_most", "infinite", "none_inside", "cannot_tell"]


class Definition(StrEnum):
    """The two definitions in use. On one curve they differ three- to fivefold, so both are reported.

    TWICE_SAMPLES: B_crit of the time–cost curve, where steps and samples are both twice their minimum (McCandlish et
    al. 2018, arXiv:1812.06162). OVERHEAD_20: the batch size at which steps exceed ideal scaling from a base batch size
    by 20 % (Zhang et al. 2024, arXiv:2410.21676).
    """

    TWICE_SAMPLES = "twice_samples"
    OVERHEAD_20 = "overhead_20"


@dataclass(frozen=True, slots=True)
class CriticalBatch:
    """A critical batch size by one definition; `value` is None where only a one-sided limit (97.5 %) is known."""

    definition: Definition
    value: Interval | None
    at_least: float | None = None
    at_most: float | None = None
    base_batch: float | None = None  # of OVERHEAD_20


class StepsReason(Enum):
    """Why an estimate is missing or one-sided, where the finding's other numbers say the rest."""

    ONE_BUDGET = auto()  # and a learning rate that decays to its end: no run shows how many steps a loss takes
    NONE_REACHED = auto()  # no run reached the target
    FEWEST_AT_LARGEST = auto()  # the largest size needed the fewest samples
    STEPS_GROW = auto()  # with the batch size, which no critical batch size explains
    STEPS_DO_NOT_DEPEND = auto()  # on the batch size: all sizes are beyond the critical one, or noise hides it
    NOISE = auto()  # hides how steps depend on the batch size
    NOISE_OF_LOSSES = auto()  # leaves no upper limit
    SAMPLES_DO_NOT_GROW = auto()  # with the batch size, at all
    NO_LARGE_SIZE = auto()  # shows where steps stop falling
    NO_SMALL_SIZE = auto()  # shows where samples stop falling


@dataclass(frozen=True, slots=True)
class TooFewReached:
    """Fewer batch sizes reached the target than the curve needs."""

    reached: int
    sizes: int


@dataclass(frozen=True, slots=True)
class TooFewAboveOptimum:
    """Fewer batch sizes than the curve needs are at or above the one that needed the fewest samples."""

    sizes: int
    optimum: float


@dataclass(frozen=True, slots=True)
class LowestAtEnd:
    """The lowest loss, or one statistically tied with it, is at an end of the sizes measured."""

    end: float


Reason = StepsReason | TooFewReached | TooFewAboveOptimum | LowestAtEnd | Misfit


@dataclass(frozen=True, slots=True)
class StepsFinding:
    """What steps to one target say.

    `found`: both limits are known. `at_least`, `at_most`: the sizes measured do not bracket the other side; the limit
    is never beyond them. `infinite`: samples to the target did not grow with the batch size at all. `none_inside`: the
    batch size with the fewest samples (the lowest loss) is the last one on a side, so the optimum is not bracketed.
    `cannot_tell`: see `reason`. The runs in `settle` would answer.
    """

    status: Status
    reason: Reason | None = None
    twice: CriticalBatch | None = None
    overhead: CriticalBatch | None = None
    read_off: float | None = None  # OVERHEAD_20 by interpolation between sizes: needs no curve, has no interval
    s_min: Interval | None = None
    e_min: Interval | None = None
    fit: Hyperbola | None = None  # absent wherever its numbers must not be shown
    token_optimal: float | None = None
    used: tuple[float, ...] = ()
    left_out: tuple[float, ...] = ()
    settle: tuple[PlannedRun, ...] = ()
