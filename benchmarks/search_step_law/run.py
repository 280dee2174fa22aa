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
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from kept import Kept
from methods import optuna_sampler, ours, plain_gp, random_cells
from ranges import Ranges, cut, failing, own, padded, shifted
from replay import DATA, Task, load
from rows import BUDGETS, HELD_OUT, PLAIN, Row, emit, paired, regrets, say
from sensitivity import sensitivity
from studies import cheaper, product_defaults, simulated, stopping

UNFINISHED = "The run was interrupted here. The same command continues it, and the other tables follow then."

GP_REPEATS, RANDOM_REPEATS = 1, 5
ROUNDS, WRONG = "batchlab, cold, rounds of 4", "batchlab, DeepSeek's law, wrong by 1 doubling (sd)"


def rows_of(with_optuna: bool) -> list[Row]:
    rows = [Row("random, without repeats", random_cells, RANDOM_REPEATS)]
    if with_optuna:
        rows.append(Row("Optuna TPE, defaults", optuna_sampler("tpe"), RANDOM_REPEATS))
        rows.append(Row("Optuna GP", optuna_sampler("gp"), GP_REPEATS))
    return [
        *rows,
        Row(PLAIN, plain_gp, RANDOM_REPEATS),
        Row("batchlab, cold", ours()),
        Row(ROUNDS, ours(round_size=4)),
        Row("batchlab, DeepSeek's law", ours(hinted=True)),
        Row(WRONG, ours(hinted=True, hint_error=1.0)),
        Row("batchlab, DeepSeek's law, two doublings too high in LR", ours(hinted=True, too_high=2.0)),
    ]


def table(title: str, tasks: list[Task], ranges: Ranges, rows: list[Row], kept: Kept) -> list[str]:
    """A Markdown table over all tasks, printed line by line, with the model size that was held out on its own."""
    heads = " | ".join(f"{runs} runs" for runs in BUDGETS)
    lines = [
        f"### {title}",
        "",
        f"| method | n (distinct) | {heads} | 8 runs, held-out 429M | p90 at 8 less plain GP-EI's, 95 % |",
        "|---|---|" + "---|" * (len(BUDGETS) + 2),
    ]
    emit(lines)
    of_row = {}
    for row in rows:
        names = [title, row.name, row.repeats]
        of_row[row.name] = [
            np.array(kept.numbers([*names, task.name], partial(regrets, task, row, ranges)))[
                :, [n - 1 for n in BUDGETS]
            ]
            for task in tasks
        ]
    at_eight = BUDGETS.index(8)
    for row in rows:
        by_task = of_row[row.name]
        every = np.concatenate(by_task)
        held = np.concatenate([found for task, found in zip(tasks, by_task, strict=True) if task.parameters > HELD_OUT])
        against = "–"
        if row.name != PLAIN and row.name.startswith("batchlab"):
            low, high = paired(*([found[:, at_eight] for found in of_row[name]] for name in (row.name, PLAIN)))
            against = f"{low:+.2f} … {high:+.2f}"
        cells = " | ".join(say(every[:, place]) for place in range(len(BUDGETS)))
        distinct = sum(len(ranges(task)) for task in tasks)
        count = f"{len(every)} ({distinct if row.repeats == 1 else len(every)})"
        lines.append(f"| {row.name} | {count} | {cells} | {say(held[:, at_eight])} | {against} |")
        emit(lines[-1:])
    emit([""])
    return [*lines, ""]


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
            "Every entry is the median / 90th percentile of the regret in percent, over tasks, ranges and repeats. "
            "Each range is used once; methods that roll dice are repeated on each. “no loss” means that no finite "
            "loss was seen by then. What a failed run means and how wide a hint is were chosen on 215M and 268M, and "
            "the 429M tasks were looked at after that. The older constants were not all chosen so: see the log. The "
            "interval of the difference in p90 is over draws of whole tasks.",
            120,
        ),
        "",
    ]


def _sensitivity(tasks: list[Task]) -> Iterator[list[str]]:
    yield ["# Search on the Step Law runs: sensitivity", "", *sensitivity(tasks)]


def _results(tasks: list[Task], kept: Kept) -> Iterator[list[str]]:
    """The parts of results.md, the headline first."""
    with_optuna = all(importlib.util.find_spec(name) for name in ("optuna", "torch"))
    rows = rows_of(with_optuna)
    fewer = [row for row in rows if row.name not in ("Optuna GP", ROUNDS, WRONG)]
    top = heading(tasks, with_optuna)
    emit(top)
    yield top
    yield product_defaults(tasks, kept)
    yield table("Ranges shifted until at least a third of the cells fails", tasks, failing, fewer, kept)
    yield table("Ranges shifted by −2 … +2 doublings; cells outside the table fail", tasks, shifted, rows, kept)
    yield simulated(kept)
    yield cheaper(tasks, kept)
    yield stopping(tasks, kept)
    yield table("The table's own range, as centred by its authors", tasks, own, fewer, kept)
    filled = (
        "Grid padded by two doublings at both ends (above the table a run diverges; below, each halving adds as much "
        "loss as the lowest one of that size, at least 0.5 %)"
    )
    yield table(filled, [replace(task, padded=True) for task in tasks], padded, fewer, kept)
    yield table("Ranges cut by 0, 1 or 2 doublings at either end", tasks, cut, fewer, kept)


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
    parts = _sensitivity(tasks) if arguments.sensitivity else _results(tasks, Kept(arguments.folder))
    lines: list[str] = []
    for part in parts:
        lines += part
        if arguments.write:
            _write(name, [*lines, UNFINISHED])
    if arguments.write:
        _write(name, lines)
    return 0


def _write(name: str, lines: list[str]) -> None:
    Path(__file__).with_name(name).write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())
