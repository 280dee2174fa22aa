"""What is believed before a study's first run, and how outcomes become evidence for the surrogate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchlab.record import Outcome
from batchlab.search import lattice
from batchlab.search.surrogate import Bowls, Evidence, Posterior, draw, percent_of
from batchlab.search.trial import Trial, TrialOutcome

if TYPE_CHECKING:
    from batchlab.search.surrogate import Floats

STUBBORN = 0.1
"""Share of the bowls that ignore a hint: it may be wrong."""

STUBBORN_STUDY = 0.02
"""Share of those that ignore an earlier study, which measured this very model."""

BATCH_EXPONENT = (0.44, 0.12)
"""Best batch size ∝ tokens^x, mean and spread of published x: 0.327 (DeepSeek 2024, arXiv:2401.02954, in compute),
0.383 (Bergsma et al. 2025, arXiv:2505.13738), 0.47 (Zhang et al. 2024, arXiv:2410.21676, critical batch size), 0.566
(Schaipp 2026, arXiv:2607.01487)."""

RATE_EXPONENT = (-0.06, 0.2)
"""Best learning rate ∝ tokens^y while the batch size grows as above: mean of −0.125 (DeepSeek 2024, in compute) and
0.01 (−0.32 at a fixed batch size, Bjorck et al. 2024, arXiv:2409.19913, plus 0.75 · 0.44 for the batch that grows).
Laws disagree even in sign, so the doubt is wider than the shift."""

TRANSFER = 0.25
"""Octaves of further doubt when a study is moved, in either direction: half a step of the lattice."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Where to start: a published law, a colleague's habit. `*_octaves` are its standard deviations.

    Published laws for language models miss another recipe's best by a factor of two to four in either, hence the
    defaults.
    """

    global_batch_size: float
    learning_rate: float
    batch_octaves: float = 1.5
    rate_octaves: float = 1.25


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """What an earlier study of the same model found, and this study's token budget ÷ its own.

    Only the shape and place of its surface are used, never its losses. It may be cheaper (ratio > 1) or equal.
    """

    outcomes: Mapping[Trial, TrialOutcome]
    tokens_ratio: float = 1.0


def before_any_run(
    batch: tuple[float, float], rate: tuple[float, float], hint: Hint | None, moved: Bowls | None
) -> Bowls:
    """Possible surfaces over ranges of log2 batch size and log2 learning rate: spread evenly over both, but around the
    hint, or where an earlier study's were `moved` to, for all except a stubborn few."""
    unit, shapes = draw()
    even = shapes.moved(_spread(unit[:, 0], *batch), _spread(unit[:, 1], *rate))
    if moved is not None:
        return moved.where(unit[:, 2] >= STUBBORN_STUDY, even)
    return _around(hint, shapes, unit).where(unit[:, 2] >= STUBBORN, even) if hint else even


def moved(
    earlier: EarlierStudy, sizes: Sequence[int], rates: Sequence[float], hint: Hint | None, noise_percent: float
) -> Bowls:
    """The surfaces that an earlier study leaves possible, moved to this budget by published exponents."""
    from scipy.special import ndtri

    trials = [trial for trial, outcome in earlier.outcomes.items() if outcome.finite]
    batch = np.log2([*sizes, *(trial.global_batch_size for trial in trials)])
    rate = np.log2([*rates, *(trial.learning_rate for trial in trials)])
    before = before_any_run((batch.min(), batch.max()), (rate.min(), rate.max()), hint, None)
    believed = Posterior(before, evidence_of(earlier.outcomes, noise_percent)).bowl_weights()
    count = len(believed)
    chosen = np.minimum(np.searchsorted(np.cumsum(believed), (np.arange(count) + 0.5) / count), count - 1)
    octaves = math.log2(earlier.tokens_ratio)
    normal = ndtri(draw()[0])
    shifts = [
        mean * octaves + math.hypot(spread * octaves, TRANSFER) * normal[:, direction]
        for direction, (mean, spread) in enumerate((BATCH_EXPONENT, RATE_EXPONENT))
    ]
    return before.take(chosen).moved(*shifts)


def _around(hint: Hint, shapes: Bowls, unit: Floats) -> Bowls:
    from scipy.special import ndtri

    return shapes.moved(
        math.log2(hint.global_batch_size) + hint.batch_octaves * ndtri(unit[:, 0]),
        math.log2(hint.learning_rate) + hint.rate_octaves * ndtri(unit[:, 1]),
    )


def _spread(unit: Floats, low: float, high: float) -> Floats:
    return np.asarray(low - lattice.MARGIN + unit * (high - low + 2 * lattice.MARGIN))


def evidence_of(outcomes: Mapping[Trial, TrialOutcome], noise_percent: float) -> Evidence:
    """A run without a loss whose reason nobody told counts as a divergence by half."""
    finite = [trial for trial, outcome in outcomes.items() if outcome.finite]
    losses = [float(outcomes[trial].loss or 0.0) for trial in finite]
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
        if outcome.finite and outcome.loss is not None:
            cells.setdefault((trial.global_batch_size, trial.learning_rate), []).append(outcome.loss)
    return [losses for losses in cells.values() if len(losses) > 1]


def noise_between_seeds(outcomes: Mapping[Trial, TrialOutcome], assumed: float) -> float:
    """Standard deviation in percent of the loss: the assumed one as one degree of freedom, and what was measured."""
    squares, freedom = assumed**2, 1
    for losses in repeated_cells(outcomes):
        percent = percent_of(losses)
        squares += float(((percent - percent.mean()) ** 2).sum())
        freedom += len(losses) - 1
    return math.sqrt(squares / freedom)
