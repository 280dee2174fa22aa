"""Loss over batch size × learning rate: each size judged at its own best learning rate, with its doubt.

What is compared. All cells share the first seed, so cells are chosen by their loss on the seeds they share, never by
setting a mean over three seeds against a lucky single run. A size's loss is then the mean over all seeds of its best
cell. The first seed also chose the cell, which makes the mean slightly optimistic: by a third of the selection's luck
at three seeds. Starved sizes are shown and never judged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from batchlab.analysis.findings import BatchRow, Cell, LrFit, Run, SurfaceFinding, ThroughputFinding
from batchlab.analysis.noise import Noise, losses_by_seed, mean_interval, paired_correlation, pooled_noise, worse
from batchlab.analysis.wording import say_rate
from batchlab.record import Outcome

Pairing = Literal["verified", "declared", "none"]

FIT_WINDOW = 2.0
"""Octaves around the best cell whose cells enter the quadratic, besides its two neighbours."""

FLAT = 1e-9
"""Curvature per octave² below this share of the loss is rounding, not shape."""

FIT_REACH = 1.5
"""Octaves from the best cell within which a fitted best learning rate is believed."""


def surface_finding(
    runs: Iterable[Run],
    sizes: Sequence[int],
    *,
    throughput: ThroughputFinding | None = None,
    token_budget: int | None = None,
) -> SurfaceFinding | None:
    """Rows for those of `sizes` that have runs, the best of them, and the set that noise cannot separate from it.

    None without any training run. `hours` are the budget at the speed measured alone, not those of co-scheduled runs.
    """
    runs = [run for run in runs if run.global_batch_size in set(sizes)]
    if not runs:
        return None
    cells = cells_of(runs)
    pairing = weakest_pairing(runs)
    bests = {size: best for size in sizes if (best := best_cell(cells[size])) is not None}
    starved = {size for size in sizes if any(run.starved for cell in cells[size] for run in cell.runs)}
    noise = pooled_noise(cell for size in sizes if size not in starved for cell in cells[size])
    judged = {size: cell for size, cell in bests.items() if size not in starved}
    winner = _best_size(judged)
    as_good = {
        size
        for size, cell in judged.items()
        if winner is not None
        and (size == winner or not worse(cell, judged[winner], noise, paired=pairing == "verified"))
    }
    rows = tuple(
        _row(size, cells[size], bests.get(size), size in starved, size in as_good, noise, throughput, token_budget)
        for size in sorted(sizes)
        if cells[size]
    )
    return SurfaceFinding(
        rows=rows,
        best=next((row for row in rows if row.global_batch_size == winner), None),
        noise_sd=noise.sd if noise else None,
        noise_df=noise.df if noise else 0,
        noise_seeds=noise.runs if noise else 0,
        correlation=_correlation(judged, winner),
        pairing=pairing,
        resolved=noise is not None and noise.cells >= 2,
        cannot_tell="" if winner is not None else _cannot_tell(rows),
    )


def cells_of(runs: Iterable[Run]) -> dict[int, tuple[Cell, ...]]:
    """Global batch size → its cells by rising learning rate; an empty tuple for any other size."""
    grouped: dict[tuple[int, float], list[Run]] = defaultdict(list)
    for run in runs:
        grouped[run.global_batch_size, run.learning_rate].append(run)
    cells: dict[int, tuple[Cell, ...]] = defaultdict(tuple)
    for (size, rate), members in sorted(grouped.items(), key=lambda item: item[0]):
        cells[size] += (Cell(size, rate, tuple(sorted(members, key=lambda run: run.seed))),)
    return cells


def best_cell(cells: Sequence[Cell]) -> Cell | None:
    """The cell with the lowest mean loss over the seeds that all cells share; at a tie the lower learning rate.

    Where no seed is shared by all, each cell's own mean is compared. None when no cell has a finite loss.
    """
    finite = [cell for cell in cells if cell.losses]
    if not finite:
        return None
    means = comparable_means(finite)
    return min(finite, key=lambda cell: (means[cell.learning_rate], cell.learning_rate))


def comparable_means(cells: Sequence[Cell]) -> dict[float, float]:
    """Learning rate → mean loss over the seeds that all these cells share (over its own where none is shared)."""
    by_seed = {cell.learning_rate: losses_by_seed(cell) for cell in cells if cell.losses}
    shared = set.intersection(*(set(losses) for losses in by_seed.values())) if by_seed else set()
    return {
        rate: sum(losses[s] for s in (shared or losses)) / len(shared or losses) for rate, losses in by_seed.items()
    }


def weakest_pairing(runs: Iterable[Run]) -> Pairing:
    """What all completed runs can claim about having seen the same data in the same order."""
    kinds = {run.pairing for run in runs if run.outcome is Outcome.COMPLETED}
    if not kinds or "none" in kinds:
        return "none"
    return "declared" if "declared" in kinds else "verified"


def edge_of(cells: Sequence[Cell], best: Cell | None) -> Literal["", "low", "high"]:
    """The side on which no finite loss lies beyond the best cell; empty when it is enclosed, or was the only one."""
    if best is None or len(cells) < 2:
        return ""
    place = [cell.learning_rate for cell in cells].index(best.learning_rate)
    if place + 1 == len(cells) or not cells[place + 1].losses:
        return "high"
    if place == 0 or not cells[place - 1].losses:
        return "low"
    return ""


def beyond_edge(cells: Sequence[Cell], best: Cell, edge: Literal["", "low", "high"]) -> Cell | None:
    """The nearest cell past the best one on its edge side: it was tried and has no finite loss. None: not tried."""
    rates = [cell.learning_rate for cell in cells]
    place = rates.index(best.learning_rate) + {"high": 1, "low": -1, "": len(cells)}[edge]
    return cells[place] if 0 <= place < len(cells) else None


def fit_learning_rate(cells: Sequence[Cell], best: Cell | None) -> LrFit:
    """Least-squares parabola in log2(LR) through the best cell, its neighbours and what lies within two octaves.

    Believed only with at least three finite cells, one on each side of the best, positive curvature, and a vertex that
    lies between the cells used and within 1.5 octaves of the best one. A parabola is a local model: diverging
    learning rates make the true curve far steeper on the right than on the left.
    """
    finite = [cell for cell in cells if cell.losses]
    if best is None or len(finite) < 3:
        return LrFit(False, f"{len(finite)} learning rates with a finite loss; a parabola needs three")
    place = finite.index(best)
    if place in (0, len(finite) - 1):
        return LrFit(False, "the best learning rate is at the edge of those with a finite loss")
    used = [
        cell
        for i, cell in enumerate(finite)
        if abs(i - place) <= 1 or abs(math.log2(cell.learning_rate / best.learning_rate)) <= FIT_WINDOW
    ]
    rates = tuple(cell.learning_rate for cell in used)
    means = comparable_means(used)
    x = np.array([math.log2(rate / best.learning_rate) for rate in rates])
    a, b, c = (float(value) for value in np.polyfit(x, np.array([means[rate] for rate in rates]), 2))
    if not a > FLAT * max(map(abs, means.values())):
        return LrFit(False, "the loss does not curve upwards around the best learning rate", learning_rates=rates)
    vertex = -b / (2 * a)
    if not x[0] < vertex < x[-1]:
        return LrFit(False, "the fitted best lies outside the learning rates tried", None, None, a, rates)
    if abs(vertex) > FIT_REACH:
        return LrFit(False, f"the fitted best is {abs(vertex):.1f} octaves from the best cell", None, None, a, rates)
    return LrFit(True, "", best.learning_rate * 2**vertex, c - b * b / (4 * a), a, rates)


def _best_size(judged: dict[int, Cell]) -> int | None:
    """Lowest mean among the sizes with the most seeds: those seeds went where the shared first seed was best."""
    if not judged:
        return None
    most = max(len(cell.losses) for cell in judged.values())
    means = {size: sum(cell.losses) / len(cell.losses) for size, cell in judged.items() if len(cell.losses) == most}
    return min(means, key=lambda size: (means[size], size))


def _correlation(judged: dict[int, Cell], winner: int | None) -> float | None:
    if winner is None:
        return None
    found = {size: paired_correlation(cell, judged[winner]) for size, cell in judged.items() if size != winner}
    nearest = sorted((abs(math.log(size / winner)), value) for size, value in found.items() if value is not None)
    return nearest[0][1] if nearest else None


def _row(
    size: int,
    cells: tuple[Cell, ...],
    best: Cell | None,
    starved: bool,
    as_good: bool,
    noise: Noise | None,
    throughput: ThroughputFinding | None,
    token_budget: int | None,
) -> BatchRow:
    point = throughput.at(size) if throughput else None
    speed = point.tokens_per_second.value if point else None
    edge = edge_of(cells, best)
    return BatchRow(
        global_batch_size=size,
        layout=(best or cells[0]).runs[0].layout,
        cells=cells,
        best=best,
        loss=mean_interval(best.losses, noise) if best else None,
        fit=fit_learning_rate(cells, best),
        edge=edge,
        starved=starved,
        as_good=as_good,
        tokens_per_second=speed,
        hours=token_budget / speed / 3600 if token_budget and speed else None,
        remark=_remark(cells, best, edge, starved),
    )


def _remark(cells: tuple[Cell, ...], best: Cell | None, edge: Literal["", "low", "high"], starved: bool) -> str:
    parts = []
    runs = [run for cell in cells for run in cell.runs]
    if starved:
        parts.append(f"starved: {max(run.steps for run in runs):,} steps are too few to judge by")
    if best is None:
        outcomes = sorted({run.outcome.word for run in runs if run.outcome is not Outcome.COMPLETED})
        parts.append(" and ".join(outcomes) if outcomes else "no finite loss")
    elif len(cells) == 1:
        parts.append("one learning rate: not tuned")
    elif edge:
        nearest = beyond_edge(cells, best, edge)
        if nearest is not None:
            words = " and ".join(sorted({run.outcome.word for run in nearest.runs}))
            parts.append(f"edge: the next learning rate, {say_rate(nearest.learning_rate)}, {words}")
        else:
            end = "highest" if edge == "high" else "lowest"
            parts.append(f"edge: best at the {end} learning rate tried")
    return "; ".join(parts)


def _cannot_tell(rows: Sequence[BatchRow]) -> str:
    finite = [row for row in rows if row.best is not None]
    if finite:
        return (
            f"All {len(finite)} batch sizes with a finite loss are starved (under 50 steps, or a warm-up under 5): "
            "give a larger token budget or smaller batches."
        )
    runs = [run for row in rows for cell in row.cells for run in cell.runs]
    words = " or ".join(sorted({run.outcome.word for run in runs}))
    return f"None of the {len(runs)} training runs has a finite loss ({words})."
