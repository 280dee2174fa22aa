"""A method replayed over all its ranges, and what is told of it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from methods import Method
from ranges import Ranges
from replay import Task, best_so_far

BUDGETS = (5, 8, 12)
PLAIN = "plain GP-EI, 5 random starts"

HELD_OUT = 4e8
"""Parameters above which a model's tasks served to choose nothing: what failed runs mean and how wide a hint is were
chosen on the other two model sizes, and on surfaces of stream 1."""


@dataclass(frozen=True)
class Row:
    """A method. `repeats`: how often it is replayed on each range, 1 for a method without chance, whose replays of
    equal ranges would be equal."""

    name: str
    method: Method
    repeats: int = 1


def dice_for(*names: object) -> np.random.Generator:
    """The same random numbers for the same names, on every machine."""
    return np.random.default_rng(zlib.crc32(" ".join(map(str, names)).encode()))


def regrets(task: Task, row: Row, ranges: Ranges, runs: int = BUDGETS[-1]) -> list[list[float]]:
    """Regrets after 1 … `runs` runs, one line per range and repeat."""
    return [
        best_so_far(task, row.method(task, given, runs, dice_for(task.name, row.name, given, repeat)), runs)
        for given in ranges(task)
        for repeat in range(row.repeats)
    ]


def say(values: Sequence[float]) -> str:
    median, tail = np.percentile(values, [50, 90])
    return " / ".join(number(value) for value in (median, tail))


def number(value: float) -> str:
    return "no loss" if value >= 100 else f"{value:.2f}"


def paired(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> tuple[float, float]:
    """95 % interval of our p90 less theirs, over draws of whole tasks: an array of regrets for each task."""
    dice = np.random.default_rng(0)
    found = []
    for _ in range(2000):
        drawn = dice.integers(len(ours), size=len(ours))
        tails = [np.percentile(np.concatenate([one[place] for place in drawn]), 90) for one in (ours, theirs)]
        found.append(tails[0] - tails[1])
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def emit(lines: Sequence[str]) -> None:
    print("\n".join(lines), flush=True)
