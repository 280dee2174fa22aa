"""Ways to choose the next run. Each gets a task, a learning-rate range in half doublings, a number of runs and a random
generator (`dice`), and returns the cells it ran, in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from ranges import Range
from replay import Cell, Task, cell_of

from batchlab.search.adaptive import AdaptiveSearch
from batchlab.search.prior import EarlierStudy, Hint

Method = Callable[[Task, Range, int, np.random.Generator], list[Cell]]


def in_range(task: Task, given: Range) -> list[Cell]:
    return [(size, half) for size in task.sizes for half in range(given[0], given[1] + 1)]


def random_cells(task: Task, given: Range, runs: int, dice: np.random.Generator) -> list[Cell]:
    cells = in_range(task, given)
    return [cells[place] for place in dice.permutation(len(cells))[:runs]]


def plain_gp(task: Task, given: Range, runs: int, dice: np.random.Generator) -> list[Cell]:
    """Matérn-5/2 with length scales of 1.5 doublings, expected improvement, 5 random starts. A run without a loss
    counts as the worst loss seen."""
    from scipy.special import ndtr

    from batchlab.search.surrogate import LENGTHSCALE, matern

    cells = in_range(task, given)
    chosen = random_cells(task, given, 5, dice)
    points = np.array([(math.log2(size), half / 2) for size, half in cells]) * LENGTHSCALE / 1.5
    while len(chosen) < runs:
        losses = [task.answer(cell).val_loss for cell in chosen]
        finite = [loss for loss in losses if loss is not None]
        open_places = [place for place, cell in enumerate(cells) if cell not in chosen]
        if not finite:
            chosen.append(cells[int(dice.choice(open_places))])
            continue
        y = np.array([max(finite) if loss is None else loss for loss in losses])
        y = (y - y.mean()) / max(float(y.std()), 1e-9)
        seen = points[[cells.index(cell) for cell in chosen]]
        kernel = matern(seen[:, 0], seen[:, 1], seen[:, 0], seen[:, 1]) + 1e-4 * np.eye(len(y))
        cross = matern(points[open_places, 0], points[open_places, 1], seen[:, 0], seen[:, 1])
        gain = cross @ np.linalg.inv(kernel)
        mean, sd = gain @ y, np.sqrt(np.maximum(1 - (gain * cross).sum(axis=1), 1e-12))
        z = (y.min() - mean) / sd
        chosen.append(cells[open_places[int(np.argmax(sd * (z * ndtr(z) + np.exp(-z * z / 2) / 2.5066)))]])
    return chosen[:runs]


def optuna_sampler(kind: str) -> Method:
    """Optuna's sampler with its defaults. It is told the worst loss so far for a divergence; a missing cell fails."""

    def method(task: Task, given: Range, runs: int, dice: np.random.Generator) -> list[Cell]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        seed = int(dice.integers(2**31))
        sampler = optuna.samplers.TPESampler(seed=seed) if kind == "tpe" else optuna.samplers.GPSampler(seed=seed)
        study = optuna.create_study(sampler=sampler)
        cells: list[Cell] = []
        worst = -math.inf
        for _ in range(runs):
            trial = study.ask()
            size = task.sizes[trial.suggest_int("size", 0, len(task.sizes) - 1)]
            cells.append((size, trial.suggest_int("half_octave", *given)))
            outcome = task.answer(cells[-1])
            worst = worst if outcome.val_loss is None else max(worst, outcome.val_loss)
            if outcome.val_loss is not None:
                study.tell(trial, outcome.val_loss)
            elif outcome.why == "diverged" and worst > -math.inf:
                study.tell(trial, worst)
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return cells

    return method


def ours(
    *,
    hinted: bool = False,
    hint_error: float = 0.0,
    too_high: float = 0.0,
    round_size: int = 1,
    stop: bool = False,
) -> Method:
    """batchlab's search. `hinted`: starts from DeepSeek's law, with an error of `hint_error` doublings (standard
    deviation) in both coordinates, and its learning rate `too_high` doublings higher. `stop`: ends by itself; otherwise
    it spends all runs."""

    def method(task: Task, given: Range, runs: int, dice: np.random.Generator) -> list[Cell]:
        wrong = (hint_error * dice.standard_normal(2) + (0.0, too_high)) if hinted else None
        search = search_on(task, given, runs, dice, hint_error=wrong, hinted=hinted, stop=stop, rounds=round_size)
        return run_search(task, search, until_found=not stop)

    return method


def shipped(task: Task, given: Range, runs: int, *, hinted: bool) -> AdaptiveSearch:
    """What a study does with `--max-runs`: it may stop by itself, and runs further seeds and confirmation seeds."""
    hint = Hint(*task.deepseek()) if hinted else None
    rates = (2 ** (given[0] / 2), 2 ** (given[1] / 2))
    return AdaptiveSearch(task.sizes, rates, hint=hint, max_runs=runs, seeds=3, confirm=2)


def search_on(
    task: Task,
    given: Range,
    runs: int,
    dice: np.random.Generator,
    *,
    hinted: bool = False,
    hint_error: Sequence[float] | None = None,
    stop: bool = False,
    rounds: int = 1,
    earlier: EarlierStudy | None = None,
) -> AdaptiveSearch:
    """A search over all batch sizes of the task, with one seed."""
    hint = None
    if hinted:
        size, rate = task.deepseek()
        error = (0.0, 0.0) if hint_error is None else hint_error
        hint = Hint(size * 2 ** error[0], rate * 2 ** error[1])
    return AdaptiveSearch(
        task.sizes,
        (2 ** (given[0] / 2), 2 ** (given[1] / 2)),
        hint=hint,
        earlier=earlier,
        round_size=rounds,
        max_runs=runs,
        seeds=1,
        smallest_gain_percent=None if stop else 0.0,
    )


def run_search(task: Task, search: AdaptiveSearch, until_found: bool = False) -> list[Cell]:
    """The different cells of a search that the table answers. `until_found` ends at its lowest loss: regret cannot
    change then."""
    cells: list[Cell] = []
    while (trials := search.ask()) and not (until_found and task.lowest in map(task.losses.get, cells)):
        asked = [cell_of(trial) for trial in trials]
        search.tell(trials, [task.answer(cell, trial.seed) for cell, trial in zip(asked, trials, strict=True)])
        cells += [cell for cell in dict.fromkeys(asked) if cell not in cells]
    return cells
