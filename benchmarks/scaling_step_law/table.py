"""The Step Law table as tasks: one loss surface per (model size, token budget), and its optima."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator

SEQUENCE_LENGTH = 2048


@dataclass(frozen=True, eq=False)
class Task:
    """loss[batch in sequences][log2 learning rate, in halves]: smoothed training loss at the end of a run."""

    parameters: float
    tokens: float
    loss: dict[int, dict[float, float]]

    @property
    def best_loss(self) -> float:
        return min(min(row.values()) for row in self.loss.values())

    def steps(self, batch: int) -> float:
        """Optimizer steps of every run at this batch."""
        return self.tokens / (batch * SEQUENCE_LENGTH)

    def tuned(self, batch: int) -> float:
        """Lowest loss measured at this batch."""
        return min(self.loss[batch].values())

    def best_rate(self, batch: int) -> float:
        """log2 of the learning rate of the lowest cell."""
        return min(self.loss[batch], key=self.loss[batch].__getitem__)

    def loss_at(self, batch: int, rate: float, snap: bool = False) -> float:
        """Loss at a learning rate (log2): monotone between cells; outside the tried rates, the outermost cell."""
        x, y, curve = _curve(self, batch)
        if snap:
            return float(np.exp(y[np.abs(x - rate).argmin()]))
        return float(np.exp(curve(np.clip(rate, x[0], x[-1]))))

    def loss_between(self, batch: float, rate: float) -> float:
        """Loss at any batch (sequences): `loss_at` the neighbouring tried sizes, linear between them in log batch."""
        sizes = sorted(self.loss)
        logs = [math.log(self.loss_at(size, rate)) for size in sizes]
        return float(np.exp(np.interp(math.log2(batch), np.log2(sizes), logs)))


@cache
def _curve(task: Task, batch: int) -> tuple[np.ndarray, np.ndarray, PchipInterpolator]:
    x = np.array(sorted(task.loss[batch]))
    y = np.log([task.loss[batch][v] for v in x])
    return x, y, PchipInterpolator(x, y)


def read_tasks(path: Path) -> list[Task]:
    """All tasks by size and budget. Rounding to half doublings merges the two spellings of a learning rate."""
    surfaces: dict[tuple[float, float], dict[int, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            rate = round(2 * math.log2(float(row["lr"]))) / 2
            surfaces[float(row["N"]), float(row["D"])][int(row["bs"])][rate] = float(row["smooth loss"])
    return [Task(size, tokens, dict(surface)) for (size, tokens), surface in sorted(surfaces.items())]


@cache
def fitted_rate(task: Task, batch: int) -> float:
    """log2 learning rate at the vertex of a parabola through cells within one doubling and 2 % of the lowest one."""
    x = np.array(sorted(task.loss[batch]))
    y = np.array([task.loss[batch][v] for v in x])
    i = int(y.argmin())
    if i in (0, len(x) - 1):
        return float(x[i])
    near = slice(max(0, i - 2), i + 3)
    use = y[near] < 1.02 * y[i]
    if use.sum() < 3:
        return float(x[i])
    a, b, _ = np.polyfit(x[near][use] - x[i], y[near][use], 2)
    return float(x[i] + np.clip(-b / (2 * a), -0.5, 0.5)) if a > 0 else float(x[i])


@cache
def fitted_optimum(task: Task) -> tuple[float, float]:
    """(B_opt, log2 learning rate there): a weighted parabola through the tuned minima within two doublings."""
    sizes = np.array(sorted(task.loss))
    x, y = np.log2(sizes), np.log([task.tuned(int(size)) for size in sizes])
    i = int(y.argmin())
    use = np.abs(x - x[i]) <= 2.01
    a, b, _ = np.polyfit(x[use] - x[i], y[use], 2, w=np.exp(-(y[use] - y[i]) / 0.02))
    best = float(x[i] + (np.clip(-b / (2 * a), -1, 1) if a > 0 else 0.0))
    rates = np.array([fitted_rate(task, int(size)) for size in sizes])
    _, rate = np.polyfit(x - best, rates, 1, w=np.exp(-(((x - best) / 1.5) ** 2)))
    return 2.0**best, float(rate)


def best_cell(task: Task) -> tuple[float, float]:
    """(batch, log2 learning rate) of the lowest of all cells."""
    batch = min(task.loss, key=task.tuned)
    return float(batch), task.best_rate(batch)


def coarse_cell(task: Task) -> tuple[float, float]:
    """The lowest cell of a coarse study: batch sizes two doublings apart, learning rates one doubling apart."""
    rows = {
        batch: {rate: loss for rate, loss in task.loss[batch].items() if rate == int(rate)} for batch in (32, 128, 512)
    }
    batch = min(rows, key=lambda size: min(rows[size].values()))
    return float(batch), min(rows[batch], key=rows[batch].__getitem__)
