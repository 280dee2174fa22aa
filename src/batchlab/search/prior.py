"""The prior before a study's first run, and how outcomes become evidence for the surrogate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchlab.core.errors import InputError
from batchlab.core.record import Outcome
from batchlab.scaling.published import PRIOR_BATCH_BY_BUDGET, PRIOR_RATE_BY_BUDGET
from batchlab.search import lattice
from batchlab.search.surrogate import Basins, Evidence, Posterior, draw, percent_of
from batchlab.search.trial import Trial, TrialOutcome

if TYPE_CHECKING:
    from batchlab.search.surrogate import Floats

STUBBORN = 0.1
"""Share of the basins that ignore a hint: it may be wrong."""

STUBBORN_STUDY = 0.02
"""Share of the basins that ignore an earlier study of this very model, once there is evidence to doubt it."""

BELOW = 1.0
"""Doublings below a hint's learning rate at which the search starts. One that is twice too high costs more than twice
as much as one that is twice too low, and may diverge."""

DOUBTABLE = 3
"""Runs after which they do. One loss does not say where the lowest lies, and two only in which direction; before that,
these basins would send a run anywhere, since nothing contradicts the gain they promise there."""

TRANSFER = 0.25
"""Standard deviation in doublings that moving a study adds in either direction: half a step of the lattice."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Where to start: a published law, a colleague's habit. `*_sd` are its standard deviations in doublings.

    Published laws for language models miss another recipe's best by a factor of two to four in either, hence the
    defaults.
    """

    global_batch_size: float
    learning_rate: float
    batch_sd: float = 1.5
    rate_sd: float = 2.0

    @property
    def start(self) -> tuple[float, float]:
        """log2 of the batch size and of the learning rate that the search starts from."""
        return math.log2(self.global_batch_size), math.log2(self.learning_rate) - BELOW


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """What an earlier study of the same model found, and this study's token budget ÷ its own.

    Only the shape and place of its surface are used, never its losses. It may be cheaper (ratio > 1) or equal.
    """

    outcomes: Mapping[Trial, TrialOutcome]
    tokens_ratio: float = 1.0


def require_start(hint: Hint | None, earlier: EarlierStudy | None) -> None:
    """InputError where a search cannot start from these."""
    if hint is not None:
        given = (hint.global_batch_size, hint.learning_rate, hint.batch_sd, hint.rate_sd)
        if not all(math.isfinite(value) and value > 0 for value in given):
            raise InputError(
                f"The hint of batch {hint.global_batch_size:g} at learning rate {hint.learning_rate:g} cannot be used; "
                "both, and their standard deviations in doublings, are positive finite numbers."
            )
    if hint is not None and earlier is not None:
        raise InputError("A search starts from a hint or from an earlier study, not from both; the study knows more.")
    if earlier is not None and not (math.isfinite(earlier.tokens_ratio) and earlier.tokens_ratio > 0):
        raise InputError(f"This budget is {earlier.tokens_ratio} × that of the earlier study; give a positive number.")


def before_any_run(batch: tuple[float, float], rate: tuple[float, float], hint: Hint | None) -> Basins:
    """Possible surfaces over ranges of log2 batch size and log2 learning rate: spread evenly over both; with a hint,
    around it, except for the share that ignores it."""
    unit, shapes = draw()
    even = shapes.moved(_spread(unit[:, 0], *batch), _spread(unit[:, 1], *rate))
    return _around(hint, shapes, unit).where(unit[:, 2] >= STUBBORN, even) if hint else even


def after_study(moved: Basins, batch: tuple[float, float], rate: tuple[float, float], runs: int) -> Basins:
    """The surfaces that an earlier study leaves possible; after `DOUBTABLE` runs of this one a few ignore it."""
    if runs < DOUBTABLE:
        return moved
    return moved.where(draw()[0][:, 2] >= STUBBORN_STUDY, before_any_run(batch, rate, None))


def moved(earlier: EarlierStudy, sizes: Sequence[int], rates: Sequence[float], noise_percent: float) -> Basins:
    """The surfaces that an earlier study leaves possible, moved to this budget by published exponents.

    Along its ridge: a lowest point that moves to larger batches takes the learning rate with it by the slope that the
    basin has, so that two exponents published apart, and what the study measured of the ridge, agree with each other.
    """
    from scipy.special import ndtri

    trials = [trial for trial, outcome in earlier.outcomes.items() if outcome.finite]
    batch = np.log2([*sizes, *(trial.global_batch_size for trial in trials)])
    rate = np.log2([*rates, *(trial.learning_rate for trial in trials)])
    before = before_any_run((batch.min(), batch.max()), (rate.min(), rate.max()), None)
    believed = Posterior(before, evidence_of(earlier.outcomes, noise_percent)).basin_weights()
    count = len(believed)
    chosen = np.minimum(np.searchsorted(np.cumsum(believed), (np.arange(count) + 0.5) / count), count - 1)
    basins = before.take(chosen)
    doublings = math.log2(earlier.tokens_ratio)
    normal = ndtri(draw()[0])
    along, down = (
        published.mean * doublings + math.hypot(published.sd * doublings, TRANSFER) * normal[:, direction]
        for direction, published in enumerate((PRIOR_BATCH_BY_BUDGET, PRIOR_RATE_BY_BUDGET))
    )
    return basins.moved(along, down + basins.slope * along)


def _around(hint: Hint, shapes: Basins, unit: Floats) -> Basins:
    from scipy.special import ndtri

    batch, rate = hint.start
    return shapes.moved(batch + hint.batch_sd * ndtri(unit[:, 0]), rate + hint.rate_sd * ndtri(unit[:, 1]))


def _spread(unit: Floats, low: float, high: float) -> Floats:
    return np.asarray(low - lattice.MARGIN + unit * (high - low + 2 * lattice.MARGIN))


def evidence_of(outcomes: Mapping[Trial, TrialOutcome], noise_percent: float) -> Evidence:
    """A run that has no loss for an unknown reason counts as half a divergence."""
    finite = [trial for trial, outcome in outcomes.items() if outcome.finite]
    losses = [float(outcomes[trial].val_loss or 0.0) for trial in finite]
    sure = {Outcome.DIVERGED: 1.0, None: 0.5}
    diverged = {
        trial: sure[outcome.why] for trial, outcome in outcomes.items() if not outcome.finite and outcome.why in sure
    }
    cells, lost = lattice.cells_of(finite), lattice.cells_of(list(diverged))
    return Evidence(
        batch=cells.batch,
        rate=cells.rate,
        percent=percent_of(losses),
        diverged_batch=lost.batch,
        diverged_rate=lost.rate,
        diverged=np.array(list(diverged.values()), dtype=float),
        noise=noise_percent,
    )


def repeated_cells(outcomes: Mapping[Trial, TrialOutcome]) -> list[list[float]]:
    """Losses of every cell that ran with several seeds."""
    cells: dict[tuple[int, float], list[float]] = {}
    for trial, outcome in outcomes.items():
        if outcome.finite and outcome.val_loss is not None:
            cells.setdefault((trial.global_batch_size, trial.learning_rate), []).append(outcome.val_loss)
    return [losses for losses in cells.values() if len(losses) > 1]


def noise_between_seeds(outcomes: Mapping[Trial, TrialOutcome], assumed: float) -> float:
    """Standard deviation in percent of the loss: the assumed one as one degree of freedom, and what was measured."""
    squares, freedom = assumed**2, 1
    for losses in repeated_cells(outcomes):
        percent = percent_of(losses)
        squares += float(((percent - percent.mean()) ** 2).sum())
        freedom += len(losses) - 1
    return math.sqrt(squares / freedom)
