"""How few runs does a search need to find the best batch size and learning rate of real pretraining runs?

    python benchmarks/search_step_law/run.py [--write] [--folder DIR]

Replays the published Step Law runs (arXiv:2503.04715; 12 tasks, see ../shared/data/README.md) to batchlab's search, to
random choice, to a plain Gaussian process and, if installed (`pip install optuna torch`), to Optuna's TPE and GP
samplers. Regret = loss of the best cell so far ÷ the lowest loss of the task's table − 1. `--write` writes results.md
beside this file. `--folder` keeps replays, so that an interrupted run continues; replays made by another version of the
sources are not read. `--sensitivity` instead halves and doubles every constant of the search.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import sys
import textwrap
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from kept import Kept
from methods import Method, Range, optuna_sampler, ours, plain_gp, random_cells, run_search, search_on
from replay import DATA, Task, best_so_far, load

import batchlab.search.lattice
import batchlab.search.prior
import batchlab.search.surrogate
from batchlab.search.prior import EarlierStudy

BUDGETS = (5, 8, 12, 18)
OFFSETS = 50
FEW_OFFSETS = 10  # in the side tables
GP_REPEATS = 10
SHARE_OF_GRID = 0.03
LEAST_RATIO = 4.0
SMALL_RUNS = 12
AT_REAL_BUDGET = 2  # runs reserved for the target when a cheaper study comes first

Ranges = Callable[[Task, np.random.Generator], Range]


def own_range(task: Task, dice: np.random.Generator) -> Range:
    return task.rates


def shifted_range(task: Task, dice: np.random.Generator) -> Range:
    """The table's range, shifted by −2 to +2 doublings."""
    offset = int(dice.integers(-4, 5))
    return task.rates[0] + offset, task.rates[1] + offset


def cut_range(task: Task, dice: np.random.Generator) -> Range:
    """The table's range, cut by 0 to 2 doublings at either end: the best cell may lie outside."""
    low, high = (int(cut) for cut in dice.integers(0, 5, 2))
    return task.rates[0] + low, task.rates[1] - high


def padded_range(task: Task, dice: np.random.Generator) -> Range:
    """Two doublings more at both ends, shifted by −1 to +1 doubling."""
    offset = int(dice.integers(-2, 3))
    return task.rates[0] - 4 + offset, task.rates[1] + 4 + offset


@dataclass(frozen=True)
class Row:
    """A method and its repeats per task.

    `rolls`: the method is random, so that equal ranges give different results. `dice`: the name that seeds it, if that
    is not `name`.
    """

    name: str
    method: Method
    repeats: int = OFFSETS
    rolls: bool = True
    dice: str = ""


def rows_of(with_optuna: bool) -> list[Row]:
    rows = [Row("random, without repeats", random_cells)]
    if with_optuna:
        rows += [Row("Optuna TPE, defaults", optuna_sampler("tpe")), Row("Optuna GP", optuna_sampler("gp"), GP_REPEATS)]
    return [
        *rows,
        Row("plain GP-EI, 5 random starts", plain_gp),
        Row("batchlab, cold", ours(), rolls=False),
        Row("batchlab, cold, rounds of 4", ours(round_size=4), FEW_OFFSETS, rolls=False),
        Row("batchlab, DeepSeek's law", ours(hinted=True), rolls=False),
        Row(
            "batchlab, DeepSeek's law, wrong by 1 doubling (sd)",
            ours(hinted=True, hint_error=1.0),
            dice="batchlab, DeepSeek's law, wrong by 1 octave (sd)",
        ),
    ]


def dice_for(*names: object) -> np.random.Generator:
    """The same random numbers for the same names, on every machine."""
    return np.random.default_rng(zlib.crc32(" ".join(map(str, names)).encode()))


def regrets(task: Task, row: Row, ranges: Ranges, runs: int = BUDGETS[-1]) -> list[list[float]]:
    """Regrets after 1 … `runs` runs, one line per repeat; the offsets are the same for every method."""
    found = []
    known: dict[Range, list[float]] = {}
    for repeat in range(row.repeats):
        given = ranges(task, dice_for(task.name, "offset", repeat))
        if row.rolls or given not in known:
            cells = row.method(task, given, runs, dice_for(task.name, row.dice or row.name, repeat))
            known[given] = best_so_far(task, cells, runs)
        found.append(known[given])
    return found


def say(values: Sequence[float]) -> str:
    median, tail = np.percentile(values, [50, 90])
    return " / ".join("no loss" if value >= 100 else f"{value:.2f}" for value in (median, tail))


def table(title: str, tasks: list[Task], ranges: Ranges, rows: list[Row], kept: Kept) -> list[str]:
    """A Markdown table over all tasks, printed line by line, with the spread over tasks at 8 runs."""
    heads = " | ".join(f"{runs} runs" for runs in BUDGETS)
    lines = [f"### {title}", "", f"| method | n | {heads} | p90 at 8, best … worst task |", "|---|---|" + "---|" * 5]
    emit(lines)
    for row in rows:
        by_task = [
            np.array(kept.numbers([title, row.name, row.repeats, task.name], partial(regrets, task, row, ranges)))
            for task in tasks
        ]
        every = np.concatenate(by_task)
        tails = sorted(float(np.percentile(found[:, 7], 90)) for found in by_task)
        cells = " | ".join(say(every[:, runs - 1]) for runs in BUDGETS)
        ends = " … ".join("no loss" if value >= 100 else f"{value:.2f}" for value in (tails[0], tails[-1]))
        lines.append(f"| {row.name} | {len(every)} | {cells} | {ends} |")
        emit(lines[-1:])
    emit([""])
    return [*lines, ""]


def stops(task: Task, hinted: bool) -> list[list[float]]:
    """Per offset: runs until the search stopped by itself, its regret, and whether it chose a run under 2,000 steps."""
    known: dict[Range, list[float]] = {}
    found = []
    for repeat in range(2 * FEW_OFFSETS):
        given = shifted_range(task, dice_for(task.name, "offset", repeat))
        if given not in known:
            cells = ours(hinted=hinted, stop=True)(task, given, 60, dice_for(task.name, "stop"))
            best = min(cells, key=task.regret)
            known[given] = [len(cells), task.regret(best), best in task.short]
        found.append(known[given])
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
        lines.append(f"| {name} | {len(ends)} | {middle:.0f}, {low:.0f} … {high:.0f} | {say(ends)} | {sum(short)} |")
    emit(lines)
    emit([""])
    return [*lines, ""]


def two_studies(small: Task, task: Task, hinted: bool) -> list[list[float]]:
    """Per offset: runs of a study at the small budget, runs of the study that starts from it, both within SHARE_OF_GRID
    of the tokens of the task's grid, and the latter's regret."""
    ratio = task.tokens / small.tokens
    budget = SHARE_OF_GRID * len(task.losses) * ratio  # in runs of the small study
    most = min(SMALL_RUNS, int(budget - AT_REAL_BUDGET * ratio))
    known: dict[Range, list[float]] = {}
    found = []
    for repeat in range(OFFSETS):
        given = shifted_range(small, dice_for(task.name, "offset", repeat))
        if given not in known:
            dice = dice_for(task.name, "cheaper")
            first = search_on(small, given, most, dice, hinted=hinted)
            few = len(run_search(small, first))
            real = int((budget - few) / ratio)
            search = search_on(task, given, real, dice, earlier=EarlierStudy(first.outcomes, ratio))
            known[given] = [few, real, min(map(task.regret, run_search(task, search)))]
        found.append(known[given])
    return found


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
        for task in tasks:
            small = min((other for other in tasks if other.parameters == task.parameters), key=lambda one: one.tokens)
            ratio = task.tokens / small.tokens
            if ratio < LEAST_RATIO:
                continue
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
    emit(lines)
    emit([""])
    return [*lines, ""]


CONSTANTS = (
    (batchlab.search.surrogate, "STEEPNESS_CENTRE"),
    (batchlab.search.surrogate, "STEEPNESS_SD"),
    (batchlab.search.surrogate, "RESIDUAL_CENTRE"),
    (batchlab.search.surrogate, "LENGTHSCALE"),
    (batchlab.search.surrogate, "FAR"),
    (batchlab.search.surrogate, "DIVERGES"),
    (batchlab.search.surrogate, "MISJUDGED"),
    (batchlab.search.surrogate, "SKEW"),
    (batchlab.search.surrogate, "SLOPE"),
    (batchlab.search.surrogate, "OVER_BATCH"),
    (batchlab.search.lattice, "MARGIN"),
    (batchlab.search.lattice, "ROOM"),
    (batchlab.search.prior, "STUBBORN"),
)


def sensitivity(tasks: list[Task]) -> list[str]:
    """p90 at 8 runs with each constant halved and doubled, per model size, and the result on a held-out size of
    choosing it on the other sizes."""
    models = sorted({task.parameters for task in tasks})
    lines = [
        "### Every constant halved and doubled",
        "",
        "p90 of the regret at 8 runs, shifted ranges, n = 144 (12 tasks × 3 offsets × 4 starts: cold, DeepSeek's law, "
        "the law\nwrong by 1 doubling, rounds of 4). Held out: the best value on two model sizes, judged on the third.",
        "",
        "| constant | value | halved | unchanged | doubled | held out, chosen | held out, unchanged |",
        "|---|---|---|---|---|---|---|",
    ]
    emit(lines)
    starts = (ours(), ours(hinted=True), ours(hinted=True, hint_error=1.0), ours(round_size=4))

    def measure() -> dict[float, list[float]]:
        found: dict[float, list[float]] = {model: [] for model in models}
        for task in tasks:
            for place, method in enumerate(starts):
                row = Row(f"start {place}", method, repeats=3)
                found[task.parameters] += [line[7] for line in regrets(task, row, shifted_range, 8)]
        return found

    as_is = measure()
    for module, name in CONSTANTS:
        value = getattr(module, name)
        tried = {1.0: as_is}
        for factor in (0.5, 2.0):
            setattr(module, name, value * factor)
            batchlab.search.surrogate.draw.cache_clear()
            tried[factor] = measure()
        setattr(module, name, value)
        batchlab.search.surrogate.draw.cache_clear()
        chosen: list[float] = []
        for model in models:
            others = {
                factor: np.percentile([x for m in models if m != model for x in found[m]], 90)
                for factor, found in tried.items()
            }
            chosen += tried[min(others, key=lambda factor: (others[factor], abs(factor - 1)))][model]
        tails = [np.percentile([x for one in tried[factor].values() for x in one], 90) for factor in (0.5, 1.0, 2.0)]
        shown = " | ".join(f"{tail:.2f}" for tail in tails)
        lines.append(f"| {name} | {value:g} | {shown} | {np.percentile(chosen, 90):.2f} | {tails[1]:.2f} |")
        emit(lines[-1:])
    emit([""])
    return [*lines, ""]


def emit(lines: Sequence[str]) -> None:
    print("\n".join(lines), flush=True)


def heading(tasks: list[Task], with_optuna: bool) -> list[str]:
    used = ["numpy", "scipy", *(["optuna", "torch"] if with_optuna else [])]
    cells = [len(task.losses) for task in tasks]
    flagged = sum(len(task.short) for task in tasks)
    diverged = sum(loss > 4 for task in tasks for loss in task.losses.values())
    return [
        "# Search on the Step Law runs: results",
        "",
        "Written by `python benchmarks/search_step_law/run.py --write`; do not edit.",
        "",
        f"Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in used)}; "
        f"{platform.machine()}, {platform.system()}"
        + ("." if with_optuna else "; Optuna is not installed, so its rows are missing."),
        "",
        textwrap.fill(
            f"{len(tasks)} tasks, {min(cells)} to {max(cells)} cells each, {sum(cells)} runs. {diverged} of them "
            f"diverged (smoothed loss above 4) and {flagged} are shorter than 2,000 steps (probably all warm-up; they "
            "are used as published). There is one run per cell, so the lowest loss of a table is itself lucky by about "
            "0.1 %. Learning rates are rounded to half doublings; a missing cell counts as a failed run and costs one "
            "run.",
            120,
        ),
        "",
        textwrap.fill(
            "Every entry is the median / 90th percentile of the regret in percent over n = tasks × repeats. Each "
            "repeat has its own offset of the learning-rate range, the same for every method. “no loss” means that no "
            "finite loss was seen by then.",
            120,
        ),
        "",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write results.md")
    parser.add_argument("--folder", type=Path, help="keep replays there, and continue from them")
    parser.add_argument("--sensitivity", action="store_true", help="halve and double every constant instead")
    parser.add_argument("--data", type=Path, default=DATA)
    arguments = parser.parse_args()
    if not arguments.data.exists():
        print(f"{arguments.data} does not exist. Give the Step Law table (arXiv:2503.04715) with --data.")
        return 2
    tasks = load(arguments.data)
    name = "sensitivity.md" if arguments.sensitivity else "results.md"
    if arguments.sensitivity:
        lines = ["# Search on the Step Law runs: sensitivity", "", *sensitivity(tasks)]
    else:
        with_optuna = all(importlib.util.find_spec(name) for name in ("optuna", "torch"))
        rows = rows_of(with_optuna)
        lines, kept = heading(tasks, with_optuna), Kept(arguments.folder)
        emit(lines)
        lines += table(
            "Ranges shifted by −2 … +2 doublings; cells outside the table fail", tasks, shifted_range, rows, kept
        )
        lines += cheaper(tasks, kept)
        lines += stopping(tasks, kept)
        fewer = [replace(row, repeats=FEW_OFFSETS) for row in rows if row.name != "Optuna GP"]
        lines += table("Ranges cut by 0 … 2 doublings at either end", tasks, cut_range, fewer, kept)
        padded = [replace(task, padded=True) for task in tasks]
        filled = (
            "Grid padded by two doublings at both ends (above the table a run diverges; below, each halving adds as "
            "much loss as the lowest one of that size, at least 0.5 %)"
        )
        lines += table(filled, padded, padded_range, fewer, kept)
        plain = [row for row in rows if row.rolls and "wrong" not in row.name and row.name != "Optuna GP"]
        once = [replace(row, repeats=1) for row in rows if not row.rolls]
        lines += table("The table's own range, as centred by its authors", tasks, own_range, [*plain, *once], kept)
    if arguments.write:
        Path(__file__).with_name(name).write_text("\n".join(lines).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
