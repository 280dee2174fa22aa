"""How much a loss changes when only the seed does, and what follows for differences.

One standard deviation is assumed for all cells (pooled), because three seeds at one cell know it to no better than a
factor of two. Seeds shared by two cells make their deviations partly the same, so the pooled degrees of freedom are
somewhat generous: with correlation ρ between two cells of n seeds they carry 2(n − 1)/(1 + ρ²).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import correlation

from batchlab.analysis.values import Cell, Interval, Run
from batchlab.core.record import Outcome

CONFIDENCE = 0.95
CORRELATION_SEEDS = 3
"""Two pairs always correlate by ±1."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Pooled standard deviation over seeds, in nats; `cells` and `runs` are what it was pooled over."""

    sd: float
    df: int
    cells: int
    runs: int


def pooled_noise(cells: Iterable[Cell]) -> Noise | None:
    """√(Σ squared deviations from each cell's mean ÷ Σ (n − 1)) over cells of at least two seeds; None without any."""
    groups = [cell.losses for cell in cells if len(cell.losses) >= 2]
    if not groups:
        return None
    squares = sum(sum((loss - sum(group) / len(group)) ** 2 for loss in group) for group in groups)
    df = sum(len(group) - 1 for group in groups)
    return Noise(math.sqrt(squares / df), df, len(groups), sum(len(group) for group in groups))


def t_quantile(probability: float, df: int) -> float:
    """Quantile of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def mean_interval(losses: Sequence[float], noise: Noise | None) -> Interval:
    """Mean ± t·sd/√n, two-sided 95 %; without measured noise only the mean."""
    mean = sum(losses) / len(losses)
    if noise is None:
        return Interval(mean, n=len(losses))
    half = t_quantile(0.5 + CONFIDENCE / 2, noise.df) * noise.sd / math.sqrt(len(losses))
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


def worse(cell: Cell, best: Cell, noise: Noise | None, *, paired: bool) -> bool:
    """Whether `cell`'s mean loss is above `best`'s by more than seeds explain: one-sided t-test at 95 %.

    Paired over the seeds both have (at least two) where runs with equal seeds saw equal data in equal order: then the
    part of the noise that a seed brings to every batch size cancels. Otherwise unpaired with the pooled sd. Without any
    measured noise every larger mean counts as worse, and the caller must say n = 1.
    """
    mine, theirs = losses_by_seed(cell), losses_by_seed(best)
    seeds = sorted(mine.keys() & theirs.keys())
    if paired and len(seeds) >= 2:
        differences = [mine[seed] - theirs[seed] for seed in seeds]
        n = len(differences)
        mean = sum(differences) / n
        sd = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1))
        return mean > t_quantile(CONFIDENCE, n - 1) * sd / math.sqrt(n)
    difference = sum(cell.losses) / len(cell.losses) - sum(best.losses) / len(best.losses)
    if noise is None:
        return difference > 0
    error = noise.sd * math.sqrt(1 / len(cell.losses) + 1 / len(best.losses))
    return difference > t_quantile(CONFIDENCE, noise.df) * error
