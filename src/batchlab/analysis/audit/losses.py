"""Does the table support the batch size and learning rate that it seems to recommend?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Literal

from batchlab.analysis.audit.flaw import (
    BestAtEdge,
    Contradiction,
    Flaw,
    LearningRateNotTuned,
    NoLoss,
    OneSeed,
    TrainBelowValidation,
    TrainingLossJudged,
    WithinNoise,
)
from batchlab.analysis.audit.table import Ending, Entry, Quantity, SweepTable

Cells = Mapping[tuple[float, float | None], Sequence[Entry]]
"""(batch size, learning rate) → its rows with a loss; the learning rate is None where the table has none."""

FEWEST_SIZES = 3
"""Batch sizes from which on a table compares them."""

FEWEST_RATES = 3
"""Learning rates from which on an edge means something."""

SAME_LOSS = 1e-9
"""Relative difference up to which two rows of one configuration and seed are one run, listed twice."""


def loss_flaws(table: SweepTable) -> Iterator[Flaw]:
    """Flaws of the comparison of losses."""
    judged = [q for q in (Quantity.VAL_LOSS, Quantity.BEST_VAL_LOSS) if q in table.present]
    training = [q for q in (Quantity.LAST_LOSS, Quantity.TRAIN_LOSS) if q in table.present]
    if not judged and training:
        with_loss = tuple(entry.line for entry in table.entries if entry.loss is not None)
        yield TrainingLossJudged(with_loss, training[-1])
    if judged or training:
        missing = [e.line for e in table.entries if e.ending is Ending.COMPLETED and e.loss is None]
        if missing:
            yield NoLoss(tuple(missing))
    for group in table.groups:
        cells = cells_of(group)
        yield from _contradictions(cells)
        yield from _not_tuned(cells)
        yield from _edges(cells)
        yield from _noise(cells)
        yield from _below(group)


def cells_of(entries: Sequence[Entry]) -> Cells:
    """The rows with a finite loss, by configuration; sorted by batch size, then learning rate."""
    cells: dict[tuple[float, float | None], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.batch and entry.loss is not None and math.isfinite(entry.loss) and entry.ending is Ending.COMPLETED:
            cells[entry.batch, entry.get(Quantity.LEARNING_RATE)].append(entry)
    return dict(sorted(cells.items(), key=lambda item: (item[0][0], item[0][1] or 0.0)))


def best_of_sizes(cells: Cells) -> dict[float, tuple[float | None, float]]:
    """Batch size → (learning rate, mean loss) of its best configuration."""
    best: dict[float, tuple[float | None, float]] = {}
    for (size, rate), entries in cells.items():
        mean = _mean(entries)
        if size not in best or mean < best[size][1]:
            best[size] = (rate, mean)
    return best


def _mean(entries: Sequence[Entry]) -> float:
    return fmean(entry.loss or 0.0 for entry in entries)


def _contradictions(cells: Cells) -> Iterator[Flaw]:
    for (size, _), entries in cells.items():
        by_seed: dict[float, list[Entry]] = defaultdict(list)
        for entry in entries:
            seed = entry.get(Quantity.SEED)
            if seed is not None:
                by_seed[seed].append(entry)
        for same in by_seed.values():
            losses = [entry.loss or 0.0 for entry in same]
            low, high = min(losses), max(losses)
            if high - low > SAME_LOSS * abs(high):
                yield Contradiction(tuple(entry.line for entry in same), size, (low, high))


def _not_tuned(cells: Cells) -> Iterator[Flaw]:
    rates: dict[float, set[float]] = defaultdict(set)
    for size, rate in cells:
        if rate is not None:
            rates[size].add(rate)
    if len(rates) < FEWEST_SIZES or any(len(tried) > 1 for tried in rates.values()):
        return
    distinct = {rate for tried in rates.values() for rate in tried}
    if len(distinct) == 1:  # one for each size may have been tuned elsewhere; one for all was not
        lines = tuple(entry.line for entries in cells.values() for entry in entries)
        yield LearningRateNotTuned(lines, len(rates), distinct.pop())


def _edges(cells: Cells) -> Iterator[Flaw]:
    """Of both axes; of learning rates at the best batch size only."""
    best = best_of_sizes(cells)
    if not best:
        return
    size = min(best, key=lambda size: (best[size][1], size))
    rate = best[size][0]
    lines = tuple(entry.line for entry in cells[size, rate])
    sizes = sorted(best)
    if len(sizes) >= FEWEST_SIZES and (side := _side(sizes.index(size), len(sizes))) is not None:
        yield BestAtEdge(lines, "batch", side, size)
    rates = sorted(other for one, other in cells if one == size and other is not None)
    if rate is not None and len(rates) >= FEWEST_RATES and (side := _side(rates.index(rate), len(rates))) is not None:
        yield BestAtEdge(lines, "learning_rate", side, rate, size)


def _side(place: int, count: int) -> Literal["low", "high"] | None:
    return "low" if place == 0 else "high" if place == count - 1 else None


def _noise(cells: Cells) -> Iterator[Flaw]:
    """Welch's t interval would need a spread per cell; the pooled one is what few seeds allow."""
    from scipy.special import stdtrit

    best = best_of_sizes(cells)
    ranked = sorted(best, key=lambda size: best[size][1])
    if len(ranked) < 2:
        return
    first, second = ranked[:2]
    ones, others = cells[first, best[first][0]], cells[second, best[second][0]]
    gap = best[second][1] - best[first][1]
    lines = tuple(entry.line for entry in (*ones, *others))
    squares, freedom = 0.0, 0
    for entries in cells.values():
        losses = [entry.loss or 0.0 for entry in _distinct(entries)]
        squares += sum((loss - fmean(losses)) ** 2 for loss in losses)
        freedom += len(losses) - 1
    if not freedom:
        rows = sum(map(len, cells.values()))
        yield OneSeed(lines, rows, gap / abs(best[first][1]) if best[first][1] else None)
        return
    n = (len(_distinct(ones)), len(_distinct(others)))
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(squares / freedom * (1 / n[0] + 1 / n[1]))
    if gap <= half:
        yield WithinNoise(lines, first, second, gap, half, min(n))


def _distinct(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Without rows that list the same run again."""
    found: dict[tuple[float | None, float | None], Entry] = {}
    for entry in entries:
        found.setdefault((entry.get(Quantity.SEED), entry.loss), entry)
    return list(found.values())


def _below(entries: Sequence[Entry]) -> Iterator[Flaw]:
    below = []
    for entry in entries:
        val, train = entry.get(Quantity.VAL_LOSS), entry.get(Quantity.TRAIN_LOSS)
        if val is not None and train is not None and val < train and entry.batch:
            below.append((val - train, entry))
    if below:
        gap, entry = min(below, key=lambda item: item[0])
        yield TrainBelowValidation(tuple(e.line for _, e in below), entry.batch or 0.0, gap)
