"""How much a loss changes when only the seed does, and what follows for differences.

One standard deviation is assumed for all cells (pooled), because three seeds at one cell know it to no better than a
factor of two. A cell whose own spread an F-test at 5 % tells from that of the others keeps its own (`Noise.of`). Seeds
shared by two cells make their deviations partly the same, so the pooled degrees of freedom are somewhat generous: with
correlation ρ between two cells of n seeds they carry 2(n − 1)/(1 + ρ²).

A cell with a single seed says nothing about its own spread, and the repeated cells are those near the best. So its
interval is wider (`mean_interval`). The noise of SGD is taken to have the variance η/B times a constant (Mandt et al.
2017, arXiv:1704.04289, section 3; Smith and Le 2018, arXiv:1710.06451): where a cell's η/B is above that of the
repeated cells, its variance is taken to be larger in proportion; it is never taken to be smaller. What is left is
unknown: log σ is normal around that with the standard deviation `UNKNOWN_SPREAD`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import correlation

import numpy as np

from batchlab.analysis.values import Cell, Comparing, Difference, Interval, Place, Run
from batchlab.core.record import Outcome

CONFIDENCE = 0.95
CORRELATION_SEEDS = 3
"""Two pairs always correlate by ±1."""


PAIRED_FROM = 4
"""Shared seeds from which on two cells are compared in pairs. Two pairs have one degree of freedom and t = 6.3: hardly
any difference is significant, and what is not significant was once taken for equal."""

SPREAD_FROM = 3
"""Seeds from which on a cell's own spread is compared with that of the others."""

SPREADS_DIFFER = 0.05
"""Two-sided level of the F-test for that."""

UNKNOWN_SPREAD = 0.4
"""Of log σ at a cell of one seed: a factor of 1.5 either way. 0.42 over 181 sizes of simulated studies, SGD."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Pooled standard deviation over seeds, in nats; `cells` and `runs` are what it was pooled over.

    `squares`: sum of squared deviations and degrees of freedom of every pooled cell, by its place.
    """

    sd: float
    df: int
    cells: int
    runs: int
    squares: Mapping[Place, tuple[float, int]] = field(default_factory=dict, compare=False)

    def alone(self, cell: Cell) -> float | None:
        """The variance expected of a cell that was run once; None where its own spread was measured."""
        if cell.place in self.squares or len(cell.losses) != 1:
            return None
        total = sum(degrees for _, degrees in self.squares.values())
        scales = [(math.log(rate / size), degrees) for (size, rate, _), (_, degrees) in self.squares.items()]
        if not total:
            return None
        pooled = sum(scale * degrees for scale, degrees in scales) / total
        return self.sd**2 * max(1.0, cell.learning_rate / cell.global_batch_size / math.exp(pooled))

    def of(self, cell: Cell) -> tuple[float, int, bool]:
        """(variance, degrees of freedom, own): the cell's own where it differs from that of all others, else pooled.

        A test before a test has a price: where the spreads are equal it finds a difference in 5 % of cells, and uses
        fewer degrees of freedom than it could.
        """
        others = [item for place, item in self.squares.items() if place != cell.place]
        squares, df = self.squares.get(cell.place, (0.0, 0))
        rest = sum(degrees for _, degrees in others)
        if df + 1 < SPREAD_FROM or not rest:
            return self.sd**2, self.df, False
        if not _spreads_differ(squares / df, df, sum(square for square, _ in others) / rest, rest):
            return self.sd**2, self.df, False
        return squares / df, df, True


def spreads(noise: Noise) -> tuple[float, float] | None:
    """The lowest and the highest standard deviation of a cell, where one of them differs from that of the others."""
    of_cells = {at: math.sqrt(squares / df) for at, (squares, df) in noise.squares.items() if df + 1 >= SPREAD_FROM}
    if not any(noise.of(Cell(size, rate, (), warmup))[2] for size, rate, warmup in of_cells):
        return None
    return min(of_cells.values()), max(of_cells.values())


def _spreads_differ(one: float, one_df: int, other: float, other_df: int) -> bool:
    """Two-sided F-test of two variances. A spread of exactly zero means equal runs, not a small variance."""
    from scipy.special import fdtr

    if one == 0 or other == 0:
        return False
    below = float(fdtr(one_df, other_df, one / other))
    return min(below, 1 - below) < SPREADS_DIFFER / 2


def _squares(losses: Sequence[float]) -> float:
    mean = sum(losses) / len(losses)
    return sum((loss - mean) ** 2 for loss in losses)


def pooled_noise(cells: Iterable[Cell]) -> Noise | None:
    """√(Σ squared deviations from each cell's mean ÷ Σ (n − 1)) over cells of at least two seeds; None without any."""
    groups = {cell.place: cell.losses for cell in cells if len(cell.losses) >= 2}
    if not groups:
        return None
    squares = {key: (_squares(losses), len(losses) - 1) for key, losses in groups.items()}
    df = sum(degrees for _, degrees in squares.values())
    sd = math.sqrt(sum(square for square, _ in squares.values()) / df)
    return Noise(sd, df, len(groups), sum(map(len, groups.values())), squares)


def t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


@lru_cache
def spread_quantile(probability: float, df: float) -> float:
    """Quantile of T·exp(τ·Z): T Student's t, Z normal, τ `UNKNOWN_SPREAD`. For probabilities above a half."""
    from scipy.optimize import brentq
    from scipy.special import stdtr

    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    widths, weights = np.exp(UNKNOWN_SPREAD * nodes), weights / weights.sum()
    narrow = t_quantile(probability, df)
    return float(brentq(lambda q: weights @ stdtr(df, q / widths) - probability, 0.0, 10 * narrow))


def mean_interval(cell: Cell, noise: Noise | None) -> Interval:
    """Mean ± t·sd/√n, two-sided 95 %; wider for a single seed; without measured noise only the mean."""
    losses = cell.losses
    mean = sum(losses) / len(losses)
    if noise is None:
        return Interval(mean, n=len(losses))
    alone = noise.alone(cell)
    if alone is None:
        variance, df, _ = noise.of(cell)
        half = t_quantile(0.5 + CONFIDENCE / 2, df) * math.sqrt(variance / len(losses))
    else:
        half = spread_quantile(0.5 + CONFIDENCE / 2, noise.df) * math.sqrt(alone)
    return Interval(mean, mean - half, mean + half, len(losses))


def losses_by_seed(cell: Cell) -> dict[int, float]:
    """Seed → final validation loss of the cell's completed runs."""
    return {run.seed: run.val_loss for run in cell.runs if _counts(run) and run.val_loss is not None}


def _counts(run: Run) -> bool:
    return run.outcome is Outcome.COMPLETED


def comparable_means(cells: Sequence[Cell]) -> dict[float, float]:
    """Learning rate → mean loss over the seeds that all these cells share (over its own where none is shared)."""
    by_seed = {cell.learning_rate: losses_by_seed(cell) for cell in cells if cell.losses}
    shared = set.intersection(*(set(losses) for losses in by_seed.values())) if by_seed else set()
    return {
        rate: sum(losses[s] for s in (shared or losses)) / len(shared or losses) for rate, losses in by_seed.items()
    }


def paired_correlation(one: Cell, other: Cell) -> float | None:
    """Pearson correlation of two cells' losses over the seeds they share; None below three, or without any spread."""
    first, second = losses_by_seed(one), losses_by_seed(other)
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < CORRELATION_SEEDS:
        return None
    xs, ys = [first[seed] for seed in seeds], [second[seed] for seed in seeds]
    return correlation(xs, ys) if len(set(xs)) > 1 and len(set(ys)) > 1 else None


def half_width(found: Difference, probability: float) -> float:
    """Distance from a difference to a one-sided limit that holds with this probability."""
    return t_quantile(probability, found.df) * found.error


def difference_interval(found: Difference) -> Interval:
    """Two-sided, 95 %."""
    half = half_width(found, 0.5 + CONFIDENCE / 2)
    return Interval(found.value, found.value - half, found.value + half, found.n)


def difference(cell: Cell, other: Cell, noise: Noise, *, paired: bool) -> Difference:
    """How much higher `cell`'s mean loss is than `other`'s.

    In pairs over the seeds both have, from `PAIRED_FROM` on, where runs with equal seeds saw equal data in equal order:
    then the part of the noise that a seed brings to every batch size cancels. Otherwise unpaired with the pooled
    variance, or Welch's test where the spread of one cell differs (Welch 1947, Biometrika 34:28; degrees of freedom by
    Satterthwaite). Shared seeds make the unpaired error too large where seeds move both cells alike.
    """
    mine, theirs = losses_by_seed(cell), losses_by_seed(other)
    seeds = sorted(mine.keys() & theirs.keys())
    if paired and len(seeds) >= PAIRED_FROM:
        differences = [mine[seed] - theirs[seed] for seed in seeds]
        n = len(differences)
        variance = _squares(differences) / (n - 1)
        return Difference(sum(differences) / n, math.sqrt(variance / n), n - 1, variance, n, Comparing.PAIRED)
    one, two = cell.losses, other.losses
    value, n = sum(one) / len(one) - sum(two) / len(two), min(len(one), len(two))
    (a, a_df, a_own), (b, b_df, b_own) = noise.of(cell), noise.of(other)
    error = math.sqrt(a / len(one) + b / len(two))
    if not (a_own or b_own) or error == 0:
        return Difference(value, error, noise.df, a + b, n, Comparing.POOLED)
    df = error**4 / ((a / len(one)) ** 2 / a_df + (b / len(two)) ** 2 / b_df)
    return Difference(value, error, df, a + b, n, Comparing.WELCH)


def worse(cell: Cell, best: Cell, noise: Noise | None, *, paired: bool) -> bool:
    """Whether `cell`'s mean loss is above `best`'s by more than seeds explain: one-sided t-test at 95 %.

    Without any measured noise every larger mean counts as worse, and the caller must say n = 1. Not worse is not equal:
    whether a cell costs no more than a tolerance is another test (analysis/sweep/cost.py).
    """
    if noise is None:
        return sum(cell.losses) / len(cell.losses) > sum(best.losses) / len(best.losses)
    found = difference(cell, best, noise, paired=paired)
    return found.value > half_width(found, CONFIDENCE)
