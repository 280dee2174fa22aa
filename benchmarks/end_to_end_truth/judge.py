"""One simulated study through `run_study`, and its answer compared with the truth."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from families import Ask, draw
from truth import Cell, Truth

from batchlab.analysis.extrapolation import Extrapolation, Target, extrapolate
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, SurfaceFinding
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.scaling import Scaled
from batchlab.search.lattice import STEPS_PER_DOUBLING
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task

TRAIN_WITH = "TRAIN WITH"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a recommended cell costs: in percent of the best loss, in percent of tokens, in percent of time.

    `tried_token_percent` is against the best cell that the study tried, not the best that it might have tried. Time is
    that of the run times the token-equivalents, against the batch size where that is least.
    """

    goal: str
    size: int
    rate: float
    loss_percent: float
    token_percent: float
    tried_token_percent: float
    time_percent: float


@dataclass(frozen=True, slots=True)
class Compared:
    """The token-equivalents that a study gives a batch size against its own best cell, and the true ones, percent."""

    size: int
    shown: bool  # to cost no more than the tolerance
    low: float | None
    high: float | None
    truth: float


@dataclass(frozen=True, slots=True)
class Told:
    """An extrapolated number, its interval and the truth. `value` None: refused."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    truth: float

    @property
    def covers(self) -> bool | None:
        """None: no interval was given."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.truth <= self.high


@dataclass(frozen=True, slots=True)
class Judged:
    """A study's answer beside the truth. `quoted`: (estimate, low, high, truth) of the best loss."""

    family: str
    seed: int
    search: str
    runs: int
    answered: bool
    best: tuple[int, float, float]  # the true one, of what the search may try: size, learning rate, loss
    best_tried: tuple[int, float, float] | None  # of the judged cells that it tried
    noise_percent: float  # true standard deviation over seeds at the best, in percent of its loss
    quoted: tuple[float, float | None, float | None, float] | None
    rows: tuple[tuple[int, bool], ...]  # of each size's interval: seeds behind it, and whether it covers
    best_tried_tied: bool | None
    best_size_tied: bool | None
    tied: int
    costs: tuple[Cost, ...]
    compared: tuple[Compared, ...]
    capacity: tuple[int | None, int]  # answered, true
    told: tuple[Told, ...]
    cpu_seconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def settings(ask: Ask, search: str) -> Experiment:
    """The default settings of the simulated recipe, with this truth, these axes and this search.

    One run at a time, because the size of an adaptive round would otherwise depend on the machine's cores.
    """
    given = {
        "model": ask.simulation.settings,
        "batch": {"global_batch_sizes": ask.sizes},
        "sweep": {"search": search, "learning_rates": ask.rates, "first_seed": ask.first_seed},
        "budget": {"token_budget": ask.budget},
        "device": {"name": "simulated", "workers": 1, "threads": 1},
    }
    return build_experiment(merge(resolve_task("simulated"), given))


def findings_of(experiment: Experiment, scratch: Path | None) -> Findings:
    """What a study of it finds. Its folder is deleted."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        result = run_study(
            experiment,
            Path(folder) / "study",
            lambda path, workers: InlineEngine(path),
            SilentView(),
            write_documents=False,
        )
    return result.findings


def judge(family: str, seed: int, search: str, scratch: Path | None = None) -> Judged:
    """Draw a truth, study it, and compare."""
    begun = time.process_time()
    ask = draw(family, seed)
    experiment = settings(ask, search)
    found = findings_of(experiment, scratch)
    truth = Truth(ask.simulation, experiment.schedule)
    best = truth.best(ask.sizes, rates_of(ask, search, found), ask.budget)
    surface = found.surface
    assert surface is not None
    tried = best_tried(surface, truth, ask.budget)
    return Judged(
        family=family,
        seed=seed,
        search=search,
        runs=len(found.runs),
        answered=found.recommended is not None,
        best=(best.size, best.rate, best.loss),
        best_tried=None if tried is None else (tried.size, tried.rate, tried.loss),
        noise_percent=100 * truth.deviation(best.size, best.rate, ask.budget) / best.loss,
        quoted=_quoted(surface.best, truth, ask.budget) if surface.best else None,
        rows=tuple(one for row in surface.rows if (one := _row_covers(row, truth, ask.budget)) is not None),
        best_tried_tied=None if tried is None or surface.best is None else _is_tied(tried, surface),
        best_size_tied=best.size in {row.global_batch_size for row in surface.tied} if surface.best else None,
        tied=len(surface.tied),
        costs=costs_of(found, ask, truth, best, tried or best),
        compared=compared(found, truth, ask.budget),
        capacity=(found.memory.max_micro_batch_size if found.memory else None, largest_micro_batch(ask)),
        told=told(found, ask, truth, best),
        cpu_seconds=time.process_time() - begun,
    )


def rates_of(ask: Ask, search: str, found: Findings) -> list[float]:
    """Every learning rate that the search may try: the grid's and what it was extended to, or half doublings."""
    tried = {run.learning_rate for run in found.runs}
    if search == "grid":
        return sorted({*ask.rates, *tried})
    low, high = (math.log2(rate / ask.rates[0]) for rate in (min(*tried, ask.rates[0]), max(*tried, ask.rates[-1])))
    steps = range(round((low - 2) * STEPS_PER_DOUBLING), round((high + 1) * STEPS_PER_DOUBLING) + 1)
    return sorted({*tried, *(ask.rates[0] * 2.0 ** (step / STEPS_PER_DOUBLING) for step in steps)})


def largest_micro_batch(ask: Ask) -> int:
    """What fits under the headroom, up to the largest batch size of the study."""
    machine = ask.simulation.machine
    return min(ask.sizes[-1], machine.max_micro_batch_size(int(0.95 * machine.memory_bytes)))


def costs_of(found: Findings, ask: Ask, truth: Truth, best: Cell, tried: Cell) -> tuple[Cost, ...]:
    """Of what the study says to train with, and of every objective's recommendation."""
    asked = {str(item.goal): item for item in found.recommendations}
    if found.recommended is not None:
        asked = {TRAIN_WITH: found.recommended, **asked}
    layouts = {row.global_batch_size: row.layout for row in (found.surface.rows if found.surface else ())}
    machine = ask.simulation.machine

    def seconds(cell: Cell) -> float:
        speed = machine.samples_per_second(layouts[cell.size])
        return (1 + truth.extra_tokens(cell.loss, best, ask.budget)) / speed

    rates = rates_of(ask, found.experiment.sweep.search, found)
    least = min(seconds(truth.best([size], rates, ask.budget)) for size in truth.judged(list(layouts), ask.budget))
    costs = []
    for goal, item in asked.items():
        size, rate = item.layout.global_batch_size, item.learning_rate
        cell = Cell(size, rate, truth.loss(size, rate, ask.budget))
        costs.append(
            Cost(
                goal,
                size,
                rate,
                100 * (cell.loss / best.loss - 1),
                100 * truth.extra_tokens(cell.loss, best, ask.budget),
                100 * truth.extra_tokens(cell.loss, tried, ask.budget),
                100 * (seconds(cell) / least - 1),
            )
        )
    return tuple(costs)


def compared(found: Findings, truth: Truth, budget: int) -> tuple[Compared, ...]:
    """Of every judged batch size but the best one, where its tokens have been estimated."""
    row = found.surface.best if found.surface else None
    if row is None or row.best is None:
        return ()
    size, rate = row.global_batch_size, row.best.learning_rate
    best = Cell(size, rate, truth.loss(size, rate, budget))
    return tuple(
        Compared(
            cost.global_batch_size,
            cost.shown,
            None if cost.tokens.low is None else 100 * cost.tokens.low,
            None if cost.tokens.high is None else 100 * cost.tokens.high,
            100 * truth.extra_tokens(truth.loss(cost.global_batch_size, cost.learning_rate, budget), best, budget),
        )
        for cost in found.costs
        if cost.global_batch_size != size and cost.tokens is not None
    )


def told(found: Findings, ask: Ask, truth: Truth, best: Cell) -> tuple[Told, ...]:
    """The learning rate at twice the largest size, and the optimum at four times the budget."""
    larger = 2 * ask.sizes[-1]
    found_there = extrapolate(found, Target(global_batch_size=larger))
    numbers = [_told("rate_at_larger_batch", found_there, truth.best_rate(larger, best.rate, ask.budget).rate)]
    later = extrapolate(found, Target(token_budget=4 * ask.budget))
    size, _ = truth.optimum(best, 4 * ask.budget)
    numbers.append(_told("batch_at_larger_budget", later, size))
    if isinstance(later, Extrapolation):
        there = truth.best_rate(later.global_batch_size, best.rate, later.token_budget).rate
        numbers.append(_told("rate_at_larger_budget", later, there))
    return tuple(numbers)


def _told(name: str, answer: Extrapolation | object, truth: float) -> Told:
    if not isinstance(answer, Extrapolation):
        return Told(name, None, None, None, truth)
    number = answer.best_batch_size if name.startswith("batch") else answer.learning_rate
    assert isinstance(number, Scaled)
    return Told(name, number.value, number.low, number.high, truth)


def _quoted(row: BatchRow, truth: Truth, budget: int) -> tuple[float, float | None, float | None, float] | None:
    if row.best is None or row.val_loss is None:
        return None
    expected = truth.loss(row.global_batch_size, row.best.learning_rate, budget)
    return row.val_loss.value, row.val_loss.low, row.val_loss.high, expected


def _row_covers(row: BatchRow, truth: Truth, budget: int) -> tuple[int, bool] | None:
    """(seeds, whether the interval holds the truth). None without an interval, and where the size was not judged."""
    quoted = None if row.undertrained else _quoted(row, truth, budget)
    if quoted is None or quoted[1] is None or quoted[2] is None or row.val_loss is None:
        return None
    return row.val_loss.n, quoted[1] <= quoted[3] <= quoted[2]


def best_tried(surface: SurfaceFinding, truth: Truth, budget: int) -> Cell | None:
    """The lowest expected loss among the judged cells that have a finite loss."""
    cells = [
        Cell(row.global_batch_size, cell.learning_rate, truth.loss(row.global_batch_size, cell.learning_rate, budget))
        for row in surface.rows
        if not row.undertrained
        for cell in row.cells
        if cell.losses
    ]
    return min(cells, key=lambda cell: cell.loss, default=None)


def _is_tied(cell: Cell, surface: SurfaceFinding) -> bool:
    return (cell.size, cell.rate) in {(tied.global_batch_size, tied.learning_rate) for tied in surface.tied_cells}
