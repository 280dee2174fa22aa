"""The learning-rate ranges that a search is given, in half doublings. Each of a kind is used once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from replay import Task

Range = tuple[int, int]
Ranges = Callable[[Task], list[Range]]

FAILING = 1 / 3
"""Share of the cells of a range that fail, at least, in `failing`."""


def own(task: Task) -> list[Range]:
    """The table's range, as centred by its authors."""
    return [task.rates]


def shifted(task: Task) -> list[Range]:
    """The table's range, shifted by −2 … +2 doublings in half doublings."""
    return [(task.rates[0] + offset, task.rates[1] + offset) for offset in range(-4, 5)]


def failing(task: Task) -> list[Range]:
    """The table's range, shifted either way until a third of its cells lies outside the table, and up to a doubling
    further."""
    low, high = task.rates
    found = []
    for side in (-1, 1):
        least = next(step for step in range(high - low) if _outside(task, (low + side * step, high + side * step)))
        found += [(low + side * step, high + side * step) for step in range(least, least + 3)]
    return found


def cut(task: Task) -> list[Range]:
    """The table's range, cut by 0, 1 or 2 doublings at either end: the best cell may lie outside."""
    return [(task.rates[0] + low, task.rates[1] - high) for low, high in product((0, 2, 4), repeat=2)]


def padded(task: Task) -> list[Range]:
    """Two doublings more at both ends, shifted by −1 … +1 doubling."""
    return [(task.rates[0] - 4 + offset, task.rates[1] + 4 + offset) for offset in range(-2, 3)]


def _outside(task: Task, given: Range) -> bool:
    cells = [(size, half) for size in task.sizes for half in range(given[0], given[1] + 1)]
    return sum(cell not in task.losses for cell in cells) >= FAILING * len(cells)
