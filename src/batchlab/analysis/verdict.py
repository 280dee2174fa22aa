"""The values a recommendation is made of: what a batch size costs against the best one, and why one is recommended.

Nothing here computes; analysis/sweep/cost.py and analysis/recommendation.py do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from batchlab.analysis.values import Comparing, Interval
from batchlab.core.batch import BatchLayout


class Shared(StrEnum):
    """What all runs of a sweep have as much of: its budget, and what costs are shares of."""

    TOKENS = "tokens"
    TIME = "time"

    @classmethod
    def by(cls, run_time_seconds: float | None) -> Self:
        """Time where every run had this many seconds, else tokens."""
        return cls.TOKENS if run_time_seconds is None else cls.TIME


Goal = Literal["quality", "fastest", "soonest", "cheapest", "largest"]
"""Lowest loss; soonest of those shown to cost no more than the tolerance (what is recommended); least time, and fewest
tokens, to the same loss; most samples per step of those shown."""


class SlopeFrom(StrEnum):
    """Where the slope of the loss against tokens comes from."""

    RUN = "run"  # a run of the same cell at a smaller budget, whose schedule decays at its own end
    CURVE = "curve"  # an earlier evaluation of the same runs, whose learning rate is constant
    PUBLISHED = "published"  # exponents of language models


@dataclass(frozen=True, slots=True)
class TokenSlope:
    """How much lower the loss is at the study's budget than at the budget ÷ `factor`, in nats, at one cell."""

    drop: Interval
    factor: float
    source: SlopeFrom
    global_batch_size: int
    learning_rate: float
    shared: Shared = Shared.TOKENS  # at equal time, half the tokens are half the time


@dataclass(frozen=True, slots=True)
class Cost:
    """What a batch size costs against the best cell, each at its own best learning rate.

    loss: nats above the best cell's. tokens: extra tokens with which it would reach the best cell's loss, as a share of
    the budget, which is as much extra time; infinite where that is beyond the measured slope, and then only `low`
    tells. time_per_token: over that of the best size. shared: what both had as much of; where that is time, so is the
    cost. A limit is None where it is unknown, as where noise was not measured.
    """

    global_batch_size: int
    learning_rate: float
    loss: Interval
    tokens: Interval | None  # None: no slope is known
    by: Comparing | None  # None: it is the best cell itself, or noise was not measured
    time_per_token: float | None
    shown: bool  # to cost no more than the tolerance, with 95 % confidence
    more_seeds: int | None  # that would show it (cost._more_seeds has the condition); None: shown, or no number would
    shared: Shared = Shared.TOKENS

    @property
    def time(self) -> float | None:
        """Time to the best cell's loss over the best size's; None where tokens or speed are unknown."""
        if self.tokens is None:
            return None
        if self.shared is Shared.TIME:
            return 1 + self.tokens.value
        if self.time_per_token is None:
            return None
        return (1 + self.tokens.value) * self.time_per_token


@dataclass(frozen=True, slots=True)
class LowestLoss:
    """The lowest validation loss of the fitted surface among the tied cells; its mean over `seeds` is `loss`."""

    loss: float
    seeds: int
    confirmed: bool  # by confirmation seeds, which had no part in the choice


@dataclass(frozen=True, slots=True)
class NotTested:
    """No seed was repeated, so the lowest loss of `runs` runs is all there is."""

    runs: int


@dataclass(frozen=True, slots=True)
class SpeedUnknown:
    """No speed was measured, so the lowest loss was chosen."""


@dataclass(frozen=True, slots=True)
class BestIsSoonest:
    """No other batch size is expected to reach the same loss sooner than the one with the lowest loss."""


@dataclass(frozen=True, slots=True)
class BestAtEqualTime:
    """Every run had `seconds` of training, so the lowest loss is also what is reached soonest."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WithinTolerance:
    """Another size than the best: shown to cost no more than `tolerance`, and the soonest of those."""

    tolerance: float
    best_batch_size: int


@dataclass(frozen=True, slots=True)
class Unresolved:
    """The best size is recommended: `other` would be sooner, and is not shown to cost no more than `tolerance`."""

    tolerance: float
    other: Cost


@dataclass(frozen=True, slots=True)
class CostsMore:
    """The best size is recommended: `other` would be sooner, and costs more than `tolerance`."""

    tolerance: float
    other: Cost


@dataclass(frozen=True, slots=True)
class Soonest:
    """The least time to the loss of the best size, by the estimates, whatever they cost in tokens.

    `maybe_sooner`: sizes that might be sooner still at a better learning rate, because theirs is not enclosed, or that
    were not tried.
    """

    best_batch_size: int
    maybe_sooner: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FewestTokens:
    """The size with the lowest loss reaches every loss that others end at with the fewest tokens."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest batch size shown to cost no more than `tolerance`; the best is always one.

    `beyond`: the largest one that is statistically tied and not shown; None where there is none that is larger.
    """

    tolerance: float
    grad_accum_steps: int
    beyond: Cost | None


@dataclass(frozen=True, slots=True)
class CostToLoss:
    """What a batch size takes to reach a loss. `seconds` None: compared by tokens."""

    batch_size: int
    budget_share: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class ReachesLoss:
    """The least time, or the fewest tokens, to a loss that was asked for, among the statistically tied batch sizes."""

    loss: float
    cost: CostToLoss
    runner_up: CostToLoss | None


Reason = (
    LowestLoss
    | NotTested
    | SpeedUnknown
    | BestIsSoonest
    | BestAtEqualTime
    | WithinTolerance
    | Unresolved
    | CostsMore
    | Soonest
    | FewestTokens
    | Largest
    | ReachesLoss
)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`cost`: against the best cell, with its interval. None where it was chosen by a loss that was asked for."""

    goal: Goal
    layout: BatchLayout
    learning_rate: float
    warmup_tokens: float
    reason: Reason
    cost: Cost | None = None
