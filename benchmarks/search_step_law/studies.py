"""What whole studies reach: with default settings, on simulated surfaces, from a cheaper study, and until they stop."""

from __future__ import annotations

import textwrap
from functools import partial

import numpy as np
from kept import Kept
from methods import ours, plain_gp, run_search, search_on, shipped
from ranges import shifted
from replay import Task
from rows import HELD_OUT, PLAIN, Row, dice_for, emit, regrets, say
from surfaces import KINDS, draw

from batchlab.search.prior import EarlierStudy

JUDGED_STREAM, SURFACES = 2, 60
SHARE_OF_GRID = 0.03
LEAST_RATIO = 4.0
SMALL_RUNS = 12
AT_REAL_BUDGET = 2  # runs reserved for the target when a cheaper study comes first


def as_shipped(task: Task, hinted: bool, most: int) -> list[list[float]]:
    """Per range: regret of the best cell tried, cells tried, and runs with all seeds."""
    found = []
    for given in shifted(task):
        search = shipped(task, given, most, hinted=hinted)
        cells = run_search(task, search)
        best = min(map(task.regret, cells))
        found.append([min(best, 100.0), len(cells), len(search.outcomes)])
    return found


def product_defaults(tasks: list[Task], kept: Kept) -> list[str]:
    """The headline: what a study does with its default settings."""
    lines = [
        "### Headline: the default settings of a study",
        "",
        textwrap.fill(
            "`--max-runs` different cells at most, unless the search stops by itself before; then 3 seeds and 2 "
            "confirmation seeds at the best cell and its neighbour, whose noise is simulated (0.05 % of the loss). "
            "Ranges shifted by −2 … +2 doublings, cells outside the table fail. Regret of the best cell tried: median "
            "/ p90.",
            120,
        ),
        "",
        "| start | --max-runs | n, all distinct | cells tried: median, most | runs in all: median, most | regret | "
        "held-out 429M |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, hinted in (("learning-rate range only", False), ("DeepSeek's law", True)):
        for most in (8, 16):
            of_task = {
                task.name: kept.numbers(["shipped", name, most, task.name], partial(as_shipped, task, hinted, most))
                for task in tasks
            }
            every = np.array([line for task in tasks for line in of_task[task.name]])
            held = [line[0] for task in tasks if task.parameters > HELD_OUT for line in of_task[task.name]]
            counts = " | ".join(f"{np.median(every[:, place]):.0f}, {every[:, place].max():.0f}" for place in (1, 2))
            lines.append(f"| {name} | {most} | {len(every)} | {counts} | {say(every[:, 0])} | {say(held)} |")
    emit([*lines, ""])
    return [*lines, ""]


def on_surface(kind: str, row: Row) -> list[list[float]]:
    """Regrets after 5 and 8 runs, a line per surface."""
    found = []
    for place in range(SURFACES):
        surface = draw(kind, JUDGED_STREAM, place)
        found += [[line[4], line[7]] for line in regrets(surface.task, row, lambda _, given=surface.given: [given], 8)]
    return found


def simulated(kept: Kept) -> list[str]:
    """Surfaces of other shapes than the search's own, with failing cells."""
    lines = [
        "### Simulated surfaces with failing cells",
        "",
        f"{SURFACES} surfaces of each kind, drawn anew for judging (surfaces.py). Median / p90 of the regret.",
        "",
        "| kind | method | 5 runs | 8 runs |",
        "|---|---|---|---|",
    ]
    for kind in KINDS:
        for row in (Row(PLAIN, plain_gp), Row("batchlab, cold", ours())):
            every = np.array(kept.numbers(["surface", kind, row.name], partial(on_surface, kind, row)))
            lines.append(f"| {kind} | {row.name} | {say(every[:, 0])} | {say(every[:, 1])} |")
    emit([*lines, ""])
    return [*lines, ""]


def stops(task: Task, hinted: bool) -> list[list[float]]:
    """Per range: runs until the search stopped by itself, its regret, and whether it chose a run under 2,000 steps."""
    found = []
    for given in shifted(task):
        cells = ours(hinted=hinted, stop=True)(task, given, 60, dice_for(task.name, "stop"))
        best = min(cells, key=task.regret)
        found.append([len(cells), task.regret(best), float(best in task.short)])
    return found


def stopping(tasks: list[Task], kept: Kept) -> list[str]:
    """Number of runs of the search without a limit, and its regret."""
    lines = [
        "### When the search stops by itself",
        "",
        "It stops when another run is expected to gain less than 0.05 % of the loss, the noise between seeds.",
        "",
        "| start | n | runs: median, 10th … 90th percentile | regret: median / p90 | chose under 2,000 steps |",
        "|---|---|---|---|---|",
    ]
    for name, hinted in (("cold", False), ("DeepSeek's law", True)):
        every = [
            one for task in tasks for one in kept.numbers(["stops", name, task.name], partial(stops, task, hinted))
        ]
        counts, ends, short = zip(*every, strict=True)
        low, middle, high = np.percentile(counts, [10, 50, 90])
        lines.append(
            f"| {name} | {len(ends)} | {middle:.0f}, {low:.0f} … {high:.0f} | {say(ends)} | {sum(short):.0f} |"
        )
    emit(lines)
    emit([""])
    return [*lines, ""]


def two_studies(small: Task, task: Task, hinted: bool, real_runs: int | None = None) -> list[list[float]]:
    """Per range: runs of a study at the small budget, runs of the study that starts from it, and the latter's regret.

    Both are within SHARE_OF_GRID of the tokens of the task's grid, or the second has `real_runs`.
    """
    ratio = task.tokens / small.tokens
    budget = SHARE_OF_GRID * len(task.losses) * ratio  # in runs of the small study
    most = min(SMALL_RUNS, int(budget - AT_REAL_BUDGET * ratio)) if real_runs is None else SMALL_RUNS
    found = []
    for given in shifted(small):
        dice = dice_for(task.name, "cheaper")
        first = search_on(small, given, most, dice, hinted=hinted)
        few = len(run_search(small, first))
        real = int((budget - few) / ratio) if real_runs is None else real_runs
        search = search_on(task, given, real, dice, earlier=EarlierStudy(first.outcomes, ratio))
        found.append([few, real, min(map(task.regret, run_search(task, search)))])
    return found


def _pairs(tasks: list[Task]) -> list[tuple[Task, Task]]:
    """The smallest budget of each model, with every budget of it that is large enough."""
    smallest = {task.parameters: task for task in sorted(tasks, key=lambda one: -one.tokens)}
    pairs = [(smallest[task.parameters], task) for task in tasks]
    return [(small, task) for small, task in pairs if task.tokens / small.tokens >= LEAST_RATIO]


def cheaper(tasks: list[Task], kept: Kept) -> list[str]:
    """First a study of the same model at its smallest budget, then the rest of 3 % of the grid's tokens."""
    lines = [
        f"### A cheaper study as prior, all within {100 * SHARE_OF_GRID:g} % of the grid's tokens",
        "",
        f"The small study has {SMALL_RUNS} runs, or as many as leave {AT_REAL_BUDGET} at the real budget. Its result "
        "is moved there by published\nexponents, none of them fitted on this table.",
        "",
        "| task | budget ÷ small | small study from | small runs | real runs | tokens, % of grid | median / p90 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, hinted in (("cold", False), ("DeepSeek's law", True)):
        every: list[float] = []
        pairs = _pairs(tasks)
        for small, task in pairs:
            ratio = task.tokens / small.tokens
            names = ["two studies", name, task.name]
            small_runs, real_runs, ends = zip(
                *kept.numbers(names, partial(two_studies, small, task, hinted)), strict=True
            )
            every += ends
            shown = " | ".join(f"{min(counts)} … {max(counts)}" for counts in (small_runs, real_runs))
            tokens = [few / ratio + real for few, real in zip(small_runs, real_runs, strict=True)]
            spent = 100 * max(tokens) / len(task.losses)
            lines.append(f"| {task.name} | {ratio:.1f} | {name} | {shown} | ≤ {spent:.2f} | {say(ends)} |")
        lines.append(f"| all, n = {len(every)} | | {name} | | | | **{say(every)}** |")
        five = [
            line[2]
            for small, task in pairs
            for line in kept.numbers(["five real", name, task.name], partial(two_studies, small, task, hinted, 5))
        ]
        lines.append(f"| all, n = {len(five)} | | {name} | {SMALL_RUNS} | 5 | not bounded | **{say(five)}** |")
    emit(lines)
    emit([""])
    return [*lines, ""]
