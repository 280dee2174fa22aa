"""What steps to one loss say about the critical batch size, by either definition, or why they do not say it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Literal

from batchlab.analysis.critical.planned_runs import PlannedRun
from batchlab.analysis.critical.tradeoff import TradeoffCurve
from batchlab.analysis.values import Interval

Status = Literal["found", "between", "at_least", "at_most", "infinite", "none_inside", "cannot_tell"]


class Definition(StrEnum):
    """The definitions in use. Off the textbook curve they are three numbers, so all are reported.

    TWICE_STEPS: the batch size that needs twice the fewest steps, those of the limit of large batches. TWICE_SAMPLES:
    the one that needs twice the fewest samples, those of the limit of small batches. On the textbook curve the two are
    one number, its B_crit (McCandlish et al. 2018, arXiv:1812.06162). OVERHEAD_20: the batch size at which samples
    exceed those at a base batch size by 20 % (Zhang et al. 2024, arXiv:2410.21676). Its two ends are both measured;
    the limits of the other two are not.
    """

    TWICE_STEPS = "twice_steps"
    TWICE_SAMPLES = "twice_samples"
    OVERHEAD_20 = "overhead_20"


@dataclass(frozen=True, slots=True)
class CriticalBatch:
    """A critical batch size by one definition; `value` is None where only limits (97.5 % each) are known, or none."""

    definition: Definition
    value: Interval | None
    at_least: float | None = None
    at_most: float | None = None
    base_batch: float | None = None  # of OVERHEAD_20

    @property
    def known(self) -> bool:
        """Whether there is a number or a limit."""
        return not (self.value is None and self.at_least is None and self.at_most is None)


class StepsReason(Enum):
    """Why an estimate is missing or one-sided, where the finding's other numbers say the rest."""

    ONE_BUDGET = auto()  # and a learning rate that decays to its end: no run shows how many steps a loss takes
    NONE_REACHED = auto()  # no run reached the target
    FEWEST_AT_LARGEST = auto()  # the largest size needed the fewest samples
    STEPS_GROW = auto()  # with the batch size, which no critical batch size explains
    STEPS_DO_NOT_DEPEND = auto()  # on the batch size: all sizes are beyond the critical one, or noise hides it
    NOISE = auto()  # hides how steps depend on the batch size
    TOO_WIDE = auto()  # the sizes bracket it, but noise leaves more than a factor of 4 between the limits
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
class Misfit:
    """Steps leave every monotone curve with one knee by more than their noise."""

    largest_residual: float  # of ln S
    noise_sd: float


@dataclass(frozen=True, slots=True)
class LowestAtEnd:
    """The lowest loss, or one statistically tied with it, is at an end of the sizes measured."""

    end: float


Reason = StepsReason | TooFewReached | TooFewAboveOptimum | LowestAtEnd | Misfit


@dataclass(frozen=True, slots=True)
class StepsFinding:
    """What steps to one target say.

    `found`: at least one definition has a number; the others have limits. `between`: limits on both sides, too far
    apart for a number. `at_least`, `at_most`: the sizes measured do not bracket the other side; a limit is never beyond
    them. `infinite`: samples to
    the target did not grow with the batch size at all. `none_inside`: the batch size with the fewest samples (the
    lowest loss) is the last one on a side, so the optimum is not bracketed. `cannot_tell`: see `reason`. The runs in
    `settle` would answer.
    """

    status: Status
    reason: Reason | None = None
    twice_steps: CriticalBatch | None = None
    twice_samples: CriticalBatch | None = None
    overhead: CriticalBatch | None = None
    curve: TradeoffCurve | None = None  # absent wherever its numbers must not be shown
    token_optimal: float | None = None
    used: tuple[float, ...] = ()
    left_out: tuple[float, ...] = ()
    settle: tuple[PlannedRun, ...] = ()

    @property
    def estimates(self) -> tuple[CriticalBatch, ...]:
        """What each definition has, a number or a limit; the one that assumes least is first."""
        every = (self.overhead, self.twice_samples, self.twice_steps)
        return tuple(one for one in every if one is not None and one.known)
