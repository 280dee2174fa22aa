"""Warm-ups that were tried at every batch size: the best one of each, what the others cost, and whether larger batches
want a longer one.

A warm-up is judged at the best learning rate it has at that batch size, as a batch size is judged at its own: compared
at one learning rate, the longer warm-up would win only where that rate is too high for the shorter one. It is chosen as
learning rates are, by the seeds that the compared cells share, without confirmation seeds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from batchlab.analysis.sweep.loss_surface import best_cell, cells_of, fair, without
from batchlab.analysis.sweep.noise import (
    CONFIDENCE,
    Noise,
    difference,
    difference_interval,
    losses_by_seed,
    pooled_noise,
    t_quantile,
)
from batchlab.analysis.values import Cell, Comparing, Difference, Interval, Run
from batchlab.core.pairing import Pairing, weakest
from batchlab.core.record import Outcome


@dataclass(frozen=True, slots=True)
class TriedWarmup:
    """One warm-up at one batch size. `best`: its best cell; None without a finite loss.

    `cost`: the loss of that cell above the taken warm-up's; None for the taken one, and where noise was not measured.
    """

    warmup_fraction: float
    cells: tuple[Cell, ...]
    best: Cell | None
    undertrained: bool
    cost: Interval | None = None
    by: Comparing | None = None


@dataclass(frozen=True, slots=True)
class SizeWarmups:
    """The warm-ups of one batch size, ascending, and which one is taken."""

    global_batch_size: int
    taken: float
    tried: tuple[TriedWarmup, ...]

    @property
    def told_apart(self) -> bool:
        """Whether every other warm-up with a loss is shown to be worse, with 95 % confidence."""
        costs = [each.cost for each in self.tried if each.warmup_fraction != self.taken and each.best is not None]
        return bool(costs) and all(cost is not None and cost.low is not None and cost.low > 0 for cost in costs)


@dataclass(frozen=True, slots=True)
class LargerWantLonger:
    """What the longest warm-up gains over the shortest one at the largest batch size, less the same at the smallest.

    `gain` in nats: above zero, larger batches gain more by a longer warm-up. `n`: seeds of the cell with the fewest.
    """

    smallest: int
    largest: int
    short: float
    long: float
    gain: Interval


@dataclass(frozen=True, slots=True)
class WarmupFinding:
    """Warm-ups at all batch sizes that have runs. `trend` None: noise was not measured, or a cell has no loss."""

    sizes: tuple[SizeWarmups, ...]
    trend: LargerWantLonger | None = None

    def at(self, global_batch_size: int) -> SizeWarmups | None:
        return next((each for each in self.sizes if each.global_batch_size == global_batch_size), None)


def best_warmups(runs: Iterable[Run], confirmation_seeds: Collection[int]) -> dict[int, float]:
    """Batch size → the warm-up whose best cell has the lowest loss; at a tie the shorter one.

    An undertrained warm-up is taken only where all are. Without any finite loss it is the shortest.
    """
    return {size: _taken(tried, confirmation_seeds) for size, tried in _by_size(runs, confirmation_seeds).items()}


def warmup_finding(
    runs: Sequence[Run], confirmation_seeds: Collection[int], asked: Collection[float]
) -> WarmupFinding | None:
    """What all warm-ups cost; None where only one was tried. The trend is over the warm-ups that were `asked`, not
    those of diverged cells that were tried again, which have one learning rate each."""
    if len({run.warmup_fraction for run in runs}) < 2:
        return None
    runs = [replace(run, confirms=run.seed in confirmation_seeds) for run in runs]
    by_size = _by_size(runs, confirmation_seeds)
    noise = pooled_noise(
        cell for tried in by_size.values() for each in tried if not each.undertrained for cell in each.cells
    )
    paired = weakest(run.pairing for run in runs if run.outcome is Outcome.COMPLETED) is Pairing.VERIFIED
    compare = _Comparing(noise, frozenset(confirmation_seeds), paired)
    sizes = []
    for size, tried in sorted(by_size.items()):
        taken = _taken(tried, confirmation_seeds)
        reference = next(each.best for each in tried if each.warmup_fraction == taken)
        sizes.append(SizeWarmups(size, taken, tuple(compare.costed(each, reference) for each in tried)))
    return WarmupFinding(tuple(sizes), compare.trend([_only_asked(size, asked) for size in sizes]))


def _by_size(runs: Iterable[Run], confirmation_seeds: Collection[int]) -> dict[int, list[TriedWarmup]]:
    slices: dict[tuple[int, float], list[Run]] = {}
    for run in runs:
        slices.setdefault((run.global_batch_size, run.warmup_fraction), []).append(run)
    found: dict[int, list[TriedWarmup]] = {}
    for (size, warmup), members in sorted(slices.items()):
        cells = cells_of(members)[size]
        best = best_cell([without(cell, confirmation_seeds) for cell in cells])
        whole = next((cell for cell in cells if best is not None and cell.place == best.place), None)
        few = any(run.undertrained for run in members)
        found.setdefault(size, []).append(TriedWarmup(warmup, cells, whole, few))
    return found


def _taken(tried: Sequence[TriedWarmup], confirmation_seeds: Collection[int]) -> float:
    finite = [each for each in tried if each.best is not None]
    judged = [each for each in finite if not each.undertrained] or finite
    if not judged:
        return tried[0].warmup_fraction
    losses = {
        each.warmup_fraction: losses_by_seed(without(each.best, confirmation_seeds)) for each in judged if each.best
    }
    shared = set.intersection(*(set(by_seed) for by_seed in losses.values()))
    means = {
        warmup: sum(by_seed[seed] for seed in shared or by_seed) / len(shared or by_seed)
        for warmup, by_seed in losses.items()
    }
    return min(means, key=lambda warmup: (means[warmup], warmup))


@dataclass(frozen=True, slots=True)
class _Comparing:
    """Compares cells without the seed that chose them, as batch sizes are compared."""

    noise: Noise | None
    confirmation_seeds: frozenset[int]
    paired: bool

    def costed(self, tried: TriedWarmup, reference: Cell | None) -> TriedWarmup:
        if self.noise is None or tried.best is None or reference is None or tried.best is reference:
            return tried
        one, other = (fair(cell, self.confirmation_seeds) for cell in (tried.best, reference))
        found = difference(one, other, self.noise, paired=self.paired)
        return replace(tried, cost=difference_interval(found), by=found.by)

    def trend(self, sizes: Sequence[SizeWarmups]) -> LargerWantLonger | None:
        """Between the smallest and the largest size of those that have a loss at the first and the last warm-up."""
        ends = [size for size in sizes if _at_both_ends(size)]
        if self.noise is None or len(ends) < 2:
            return None
        small, large = ends[0], ends[-1]
        first, last = (self._lengthening(each) for each in (small, large))
        error = math.hypot(first.error, last.error)
        half = t_quantile(0.5 + CONFIDENCE / 2, min(first.df, last.df)) * error
        value = first.value - last.value
        return LargerWantLonger(
            small.global_batch_size,
            large.global_batch_size,
            small.tried[0].warmup_fraction,
            small.tried[-1].warmup_fraction,
            Interval(value, value - half, value + half, min(first.n, last.n)),
        )

    def _lengthening(self, size: SizeWarmups) -> Difference:
        """Loss of the longest warm-up above that of the shortest."""
        short, long = size.tried[0].best, size.tried[-1].best
        assert short is not None
        assert long is not None
        assert self.noise is not None
        one, other = (fair(cell, self.confirmation_seeds) for cell in (long, short))
        return difference(one, other, self.noise, paired=self.paired)


def _only_asked(size: SizeWarmups, asked: Collection[float]) -> SizeWarmups:
    return replace(size, tried=tuple(each for each in size.tried if each.warmup_fraction in asked))


def _at_both_ends(size: SizeWarmups) -> bool:
    ends = size.tried[:1] + size.tried[-1:]
    return len(size.tried) > 1 and all(end.best is not None and not end.undertrained for end in ends)
