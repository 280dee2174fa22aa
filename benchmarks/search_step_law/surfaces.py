"""Simulated surfaces of other shapes than the search's own, some of whose cells fail without a reason.

Shapes are drawn at random: three forms of the valley in the learning rate (a power of the distance, a hyperbola,
LINEX), three forms of its ridge over batch size (saturating, a power, bent down at large batches), steepness over two
orders of magnitude, optimum anywhere, seed noise, and a learning rate above which runs diverge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from ranges import Range
from replay import Task

KINDS = ("shifted range", "divergence is not recognised", "a third fails at random", "the largest third fails")
LOST = 9.9  # × the lowest loss: diverged


@dataclass(frozen=True)
class Surface:
    """A task, the range its search is given, and what is wrong with it."""

    task: Task
    given: Range
    kind: str


def draw(kind: str, stream: int, number: int) -> Surface:
    """The surface of this kind and number; `stream` separates those that served to choose from those that judge."""
    dice = np.random.default_rng([stream, KINDS.index(kind), number])
    sizes = [2.0 ** (dice.integers(2, 8) + step) for step in range(int(dice.integers(4, 11)))]
    sizes = [2 ** round(math.log2(sizes[0]) + step) for step in range(len(sizes))]
    low = int(dice.integers(-30, -12))
    high = low + int(dice.integers(8, 15))
    losses = _losses(sizes, low, high, dice)
    level = min(losses.values())
    failed: set[tuple[int, int]] = set()
    given = (low, high)
    if kind == "shifted range":
        offset = int(dice.choice([-1, 1])) * (math.ceil((high - low + 1) / 3) + int(dice.integers(0, 3)))
        given = (low + offset, high + offset)
    elif kind == "divergence is not recognised":
        failed = {cell for cell, loss in losses.items() if loss > 0.9 * LOST * level}
    elif kind == "a third fails at random":
        failed = {cell for cell in losses if dice.random() < 1 / 3}
    else:
        first = sizes[min(max(2, len(sizes) * 2 // 3), len(sizes) - 1)]
        failed = {cell for cell in losses if cell[0] >= first}
    kept = {cell: loss for cell, loss in losses.items() if cell not in failed}
    return Surface(
        Task(0.0, float(number), kept, frozenset(), diverged=0.9 * LOST * level, all_sizes=tuple(sizes)), given, kind
    )


def _losses(sizes: list[int], low: int, high: int, dice: np.random.Generator) -> dict[tuple[int, int], float]:
    form, ridge = dice.choice(["power", "hyperbola", "linex"]), dice.choice(["saturating", "power", "bent"])
    steep = 0.5 * 2 ** dice.normal(0, 1.5)
    batch = dice.uniform(math.log2(sizes[0]) - 0.5, math.log2(sizes[-1]) + 0.5)
    rate = dice.uniform(low / 2 + 0.5, high / 2 - 0.5)
    slope, knee = dice.uniform(0.2, 1.1), dice.normal(0, 1.2)
    power, skew = dice.uniform(1.4, 2.4), 2 ** dice.normal(0.8, 0.6)
    over_batch, batch_skew = 0.5 * 2 ** dice.normal(0, 1.2), 2 ** dice.normal(0, 0.7)
    noise, diverges, level = 0.03 * 2 ** dice.normal(0, 0.7), dice.uniform(1.5, 5), dice.uniform(1, 4)

    def best_rate(at: float) -> float:
        if ridge == "saturating":
            return float(rate - slope * (np.logaddexp2(0, batch + knee - at) - np.logaddexp2(0, knee)))
        if ridge == "power":
            return float(rate + 0.7 * slope * (at - batch))
        bend = batch + knee
        return float(rate + slope * (min(at, bend) - min(batch, bend)) - 0.2 * max(0.0, at - batch - 2))

    def valley(u: float) -> float:
        side = skew if u > 0 else 1.0
        if form == "power":
            return float(side * abs(u) ** power)
        if form == "hyperbola":
            return float(4 * (math.sqrt(1 + u * u / 2 * side) - 1))
        k = 0.9 * skew / 1.7
        return float(2 * (math.exp(min(k * u, 6)) - 1 - k * u) / k**2)

    found = {}
    for size in sizes:
        v = math.log2(size) - batch
        along = (
            over_batch * steep * (batch_skew if v > 0 else 1 / batch_skew) * abs(v) ** (power if form == "power" else 2)
        )
        along /= 1 + 0.3 * abs(v) if form == "hyperbola" else 1
        for half in range(low, high + 1):
            u = half / 2 - best_rate(math.log2(size))
            excess = steep * valley(u) + along + noise * dice.normal()
            found[size, half] = LOST * level if u > diverges else level * math.exp(excess / 100)
    return found
