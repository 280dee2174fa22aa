"""Loss over batch size × learning rate: each size judged at its own best learning rate, with its uncertainty.

What is compared. All cells share the first seed, so cells are chosen by their loss on the seeds they share: means over
different numbers of seeds are not comparable. Further seeds decide between sizes. The seed that chose a cell was lucky
there (the winner's curse), so a cell that was run with confirmation seeds is quoted by those alone, and compared
without the seed that chose it. Without confirmation seeds the quoted mean over n seeds keeps 1/n of that luck.
Undertrained sizes are shown and never judged.

Which cell is best. The cells that noise does not tell from the lowest mean are tied. Among them the lowest of the
fitted surface is called best, not the luckiest: a rule that gives the same answer where arithmetic differs by rounding.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from batchlab.analysis.sweep.inferred import lowest_fitted
from batchlab.analysis.sweep.learning_rate_fit import fit_learning_rate
from batchlab.analysis.sweep.noise import (
    PAIRED_FROM,
    Noise,
    comparable_means,
    difference,
    losses_by_seed,
    mean_interval,
    paired_correlation,
    pooled_noise,
    spreads,
    worse,
)
from batchlab.analysis.values import (
    AllUndertrained,
    BatchRow,
    Cell,
    Difference,
    NoBest,
    NoFiniteLoss,
    Place,
    Run,
    SurfaceFinding,
    ThroughputFinding,
    TokensAt,
)
from batchlab.core.pairing import Pairing, weakest
from batchlab.core.record import Outcome


def surface_finding(
    runs: Iterable[Run],
    sizes: Sequence[int],
    *,
    throughput: ThroughputFinding | None = None,
    tokens_at: TokensAt = lambda size: None,
    confirmation_seeds: Collection[int] = (),
    fit: bool = True,
) -> SurfaceFinding | None:
    """Rows for those of `sizes` that have runs, the best of them, and the set that is statistically tied with it.

    All runs of a size have one warm-up (`warmups.best_warmups` chooses it where several were tried).
    None without any training run. `hours` are the budget at the speed measured alone, not those of co-scheduled runs.
    Runs with `confirmation_seeds` choose nothing: they are what is quoted. `fit` False: the lowest mean is the best.
    """
    runs = [
        replace(run, confirms=run.seed in confirmation_seeds) for run in runs if run.global_batch_size in set(sizes)
    ]
    if not runs:
        return None
    cells = cells_of(runs)
    pairing = weakest(run.pairing for run in runs if run.outcome is Outcome.COMPLETED)
    bests = {size: best for size in sizes if (best := best_cell(cells[size])) is not None}
    undertrained = {size for size in sizes if any(run.undertrained for cell in cells[size] for run in cell.runs)}
    noise = pooled_noise(cell for size in sizes if size not in undertrained for cell in cells[size])
    judged = {size: cell for size, cell in bests.items() if size not in undertrained}
    lowest = _best_size({size: without(cell, confirmation_seeds) for size, cell in judged.items()})
    reference = judged[lowest] if lowest is not None else None
    paired = pairing is Pairing.VERIFIED
    tied_cells = tuple(
        cell
        for size in sorted(judged)
        for cell in cells[size]
        if reference is not None
        and cell.losses
        and (
            cell is reference
            or not worse(fair(cell, confirmation_seeds), fair(reference, confirmation_seeds), noise, paired=paired)
        )
    )
    best = reference
    if fit and len(tied_cells) > 1:
        best = lowest_fitted(tied_cells, [cell for size in sorted(sizes) for cell in cells[size]]) or reference
    winner = best.global_batch_size if best is not None else None
    if best is not None and winner is not None:
        bests[winner] = judged[winner] = best
    tied = {size for size, cell in judged.items() if any(cell is other for other in tied_cells)}
    rows = tuple(
        _row(
            size,
            cells[size],
            bests.get(size),
            size in undertrained,
            size in tied,
            noise,
            throughput,
            tokens_at(size),
            confirmation_seeds,
            _above(judged.get(size), best, noise, confirmation_seeds, paired=paired),
        )
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
        no_best=None if winner is not None else _no_best(rows),
        tied_cells=tied_cells,
        paired_seeds=_paired_seeds(judged, best, confirmation_seeds) if paired else 0,
        confirmation_seeds=len(_only(best, confirmation_seeds).losses) if best is not None else 0,
        evaluation_sd=_evaluation_sd(best),
        draws_sd=_draws_sd(best),
        fitted=best is not reference,
        spreads=spreads(noise) if noise else None,
    )


def cells_of(runs: Iterable[Run]) -> dict[int, tuple[Cell, ...]]:
    """Global batch size → its cells by rising learning rate; an empty tuple for any other size."""
    grouped: dict[Place, list[Run]] = defaultdict(list)
    for run in runs:
        grouped[run.global_batch_size, run.learning_rate, run.warmup_fraction].append(run)
    cells: dict[int, tuple[Cell, ...]] = defaultdict(tuple)
    for (size, rate, warmup), members in sorted(grouped.items(), key=lambda item: item[0]):
        cells[size] += (Cell(size, rate, tuple(sorted(members, key=lambda run: run.seed)), warmup),)
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


def without(cell: Cell, seeds: Collection[int]) -> Cell:
    """The cell without the runs of these seeds."""
    return replace(cell, runs=tuple(run for run in cell.runs if run.seed not in seeds))


def _only(cell: Cell, seeds: Collection[int]) -> Cell:
    return replace(cell, runs=tuple(run for run in cell.runs if run.seed in seeds))


def fair(cell: Cell, confirmation_seeds: Collection[int]) -> Cell:
    """The cell without the seed that chose it, where confirmation seeds can replace it."""
    if not _only(cell, confirmation_seeds).losses:
        return cell
    return without(cell, (min(run.seed for run in cell.runs),))


def _above(
    cell: Cell | None, best: Cell | None, noise: Noise | None, confirmation_seeds: Collection[int], *, paired: bool
) -> Difference | None:
    """A size's best cell against the best of all, without the seed that chose them where it can be spared."""
    if cell is None or best is None or noise is None or cell is best:
        return None
    clean = all(_only(each, confirmation_seeds).losses for each in (cell, best))
    found = difference(fair(cell, confirmation_seeds), fair(best, confirmation_seeds), noise, paired=paired)
    return replace(found, clean=clean)


def _quoted(cell: Cell, confirmation_seeds: Collection[int]) -> Cell:
    confirmed = _only(cell, confirmation_seeds)
    return confirmed if confirmed.losses else cell


def _paired_seeds(judged: dict[int, Cell], best: Cell | None, confirmation_seeds: Collection[int]) -> int:
    """Most seeds over which another size was compared with the best in pairs; 0 where all were compared unpaired."""
    if best is None:
        return 0
    mine = losses_by_seed(fair(best, confirmation_seeds)).keys()
    shared = [
        len(mine & losses_by_seed(fair(cell, confirmation_seeds)).keys())
        for cell in judged.values()
        if cell is not best
    ]
    most = max(shared, default=0)
    return most if most >= PAIRED_FROM else 0


def _evaluation_sd(best: Cell | None) -> float | None:
    """Standard error that the held-out samples give the best cell's loss; the same samples were used for every cell."""
    errors = [run.val_error for run in best.runs if run.val_error is not None] if best is not None else []
    return sum(errors) / len(errors) if errors else None


def _draws_sd(best: Cell | None) -> float | None:
    """Over the random numbers that the loss draws, root mean square over the best cell's runs."""
    spreads = [run.val_draws_sd for run in best.runs if run.val_draws_sd is not None] if best is not None else []
    return math.sqrt(sum(spread**2 for spread in spreads) / len(spreads)) if spreads else None


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
    undertrained: bool,
    tied: bool,
    noise: Noise | None,
    throughput: ThroughputFinding | None,
    token_budget: int | None,
    confirmation_seeds: Collection[int],
    above_best: Difference | None,
) -> BatchRow:
    point = throughput.at(size) if throughput else None
    speed = point.tokens_per_second.value if point else None
    edge = edge_of(cells, best)
    return BatchRow(
        global_batch_size=size,
        layout=(best or cells[0]).runs[0].layout,
        warmup_fraction=(best or cells[0]).warmup_fraction,
        cells=cells,
        best=best,
        val_loss=mean_interval(_quoted(best, confirmation_seeds), noise) if best else None,
        fit=fit_learning_rate(cells, best, noise),
        edge=edge,
        undertrained=undertrained,
        tied=tied,
        tokens_per_second=speed,
        hours=token_budget / speed / 3600 if token_budget and speed else None,
        above_best=above_best,
    )


def _no_best(rows: Sequence[BatchRow]) -> NoBest:
    finite = sum(row.best is not None for row in rows)
    if finite:
        return AllUndertrained(finite)
    return no_finite_loss([run for row in rows for cell in row.cells for run in cell.runs])


def no_finite_loss(runs: Sequence[Run]) -> NoFiniteLoss:
    """How runs without any loss ended."""
    return NoFiniteLoss(len(runs), tuple(sorted({run.outcome for run in runs}, key=lambda outcome: outcome.label)))
