"""The cheapest training runs that could show an extrapolated optimum to be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.scaling.answer import Refused, Scaled
from batchlab.scaling.optimum import Optimum, optimum_at_budget
from batchlab.scaling.refusals import NothingMeasured

STUDY_RUNS = 8
"""Runs of a study that looks for an optimum again: nine in ten replays of public runs were within 0.15 % by then."""


@dataclass(frozen=True, slots=True)
class CellRuns:
    """Runs of the study's own budget at the new batch size, one per learning rate."""

    token_budget: float
    batch_size: float
    learning_rates: tuple[float, ...]

    @property
    def tokens(self) -> float:
        """Of all runs together."""
        return self.token_budget * len(self.learning_rates)


@dataclass(frozen=True, slots=True)
class PairOfRuns:
    """The extrapolated optimum against the one `measured` at the largest budget, both run at `token_budget`."""

    token_budget: float
    batch_size: float
    learning_rate: float
    measured: Optimum

    @property
    def tokens(self) -> float:
        """Of both runs together."""
        return 2 * self.token_budget


@dataclass(frozen=True, slots=True)
class SmallStudy:
    """A study around (batch_size, learning_rate); `parameters` of its model where that is not the study's own."""

    token_budget: float
    batch_size: float
    learning_rate: float
    parameters: float | None = None
    runs: int = STUDY_RUNS

    @property
    def tokens(self) -> float:
        """Of all runs together."""
        return self.runs * self.token_budget


Confirmation = CellRuns | PairOfRuns | SmallStudy


def confirm_batch(learning_rate: Scaled, to_batch: float, token_budget: float) -> CellRuns:
    """One run of the study's own budget at the new batch; one more at half the learning rate where that is uncertain.

    Half, not double: twice too high costs about 2.5 times as much as twice too low. A shorter run would not do, because
    the best learning rate moves with the budget.
    """
    wide = learning_rate.low is None or learning_rate.low < learning_rate.value / 2
    rates = (learning_rate.value, learning_rate.value / 2) if wide else (learning_rate.value,)
    return CellRuns(token_budget, to_batch, rates)


def confirm_budget(measured: Sequence[Optimum], token_budget: float) -> PairOfRuns | SmallStudy | Refused:
    """What to run before trusting an optimum at `token_budget`: a quarter-size study, or one step towards the target.

    With one measured budget the exponent itself is unmeasured: eight runs at a quarter of it cost two of its runs. With
    several, the extrapolated optimum is run against the unmoved one at 4 × the largest budget (or at the target).
    """
    if not measured:
        return Refused(NothingMeasured())
    largest = max(measured, key=lambda optimum: optimum.token_budget)
    several = len({optimum.token_budget for optimum in measured}) > 1
    budget = min(token_budget, 4 * largest.token_budget) if several else largest.token_budget / 4
    moved = optimum_at_budget(measured, budget)
    if isinstance(moved.best_batch_size, Refused):
        return moved.best_batch_size
    assert isinstance(moved.learning_rate, Scaled)
    batch, rate = moved.best_batch_size.value, moved.learning_rate.value
    return PairOfRuns(budget, batch, rate, largest) if several else SmallStudy(budget, batch, rate)
