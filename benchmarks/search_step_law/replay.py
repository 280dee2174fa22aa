"""The published Step Law runs as a table that answers a search: one loss per (batch size, half doubling of LR)."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchlab.core.record import Outcome
from batchlab.search.trial import Trial, TrialOutcome

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "steplaw" / "dense_lr_bs_loss.csv"
SEQUENCE_LENGTH = 2048
DIVERGED = 4.0  # nats, at best losses of 2.2 to 2.6
SEED_SD = 0.0005  # of the loss: the noise that a search assumes until it has measured it
SHORT = 2000  # steps; the warm-up is believed to be 2,000 steps, so such a run never reached its learning rate

Cell = tuple[int, int]  # batch size in sequences, 2 · log2 of the learning rate


@dataclass(frozen=True)
class Task:
    """One (parameters, tokens) group of the table.

    `padded`: cells outside the table have a made-up outcome. `diverged`: losses above it are divergences. `all_sizes`:
    those that may be asked for, where some have no cell.
    """

    parameters: float
    tokens: float
    losses: dict[Cell, float]
    short: frozenset[Cell]
    padded: bool = False
    diverged: float = DIVERGED
    all_sizes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.parameters / 1e6:.0f}M/{self.tokens / 1e9:.0f}B"

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.all_sizes or tuple(sorted({size for size, _ in self.losses}))

    @property
    def rates(self) -> tuple[int, int]:
        """Lowest and highest learning rate of the table, as 2 · log2."""
        halves = [half for _, half in self.losses]
        return min(halves), max(halves)

    @property
    def lowest(self) -> float:
        return min(self.losses.values())

    def answer(self, cell: Cell, seed: int = 0) -> TrialOutcome:
        """The table has one seed; the loss of any other is simulated from it, `SEED_SD` apart."""
        loss = self.losses.get(cell)
        if loss is None and self.padded:
            loss = self._padding(cell)
        if loss is None:
            return TrialOutcome(None, why=Outcome.FAILED)
        if loss > self.diverged:
            return TrialOutcome(None, why=Outcome.DIVERGED)
        luck = np.random.default_rng([seed, cell[0], -cell[1]]).standard_normal() if seed else 0.0
        return TrialOutcome(loss * (1 + SEED_SD * luck))

    def regret(self, cell: Cell) -> float:
        """Loss ÷ the lowest loss of the table − 1, in percent; infinite for a cell without a loss."""
        loss = self.answer(cell).val_loss
        return math.inf if loss is None else 100 * (loss / self.lowest - 1)

    def deepseek(self) -> tuple[float, float]:
        """(batch size in sequences, learning rate) by DeepSeek 2024, arXiv:2401.02954, with C = 6·N·D."""
        compute = 6 * self.parameters * self.tokens
        return 0.2920 * compute**0.3271 / SEQUENCE_LENGTH, 0.3118 * compute**-0.1250

    def _padding(self, cell: Cell) -> float | None:
        """Above the table a run diverges. Below it, each halving of the learning rate adds as much loss as the lowest
        one of that size in the table, at least 0.5 %. A missing cell inside the table stays missing."""
        size, half = cell
        known = sorted(h for s, h in self.losses if s == size)
        if half > known[-1]:
            return math.inf
        if half < known[0]:
            bottom, above = self.losses[size, known[0]], self.losses.get((size, known[0] + 2), 0.0)
            per_doubling = max(0.005, bottom / above - 1 if above else 0.0)
            return bottom * (1 + per_doubling) ** ((known[0] - half) / 2)
        return None


def load(path: Path = DATA) -> list[Task]:
    """Tasks by parameters, then tokens."""
    losses: dict[tuple[float, float], dict[Cell, float]] = {}
    short: dict[tuple[float, float], set[Cell]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            group = float(row["N"]), float(row["D"])
            cell = int(row["bs"]), round(2 * math.log2(float(row["lr"])))
            losses.setdefault(group, {})[cell] = float(row["smooth loss"])
            if int(row["ti"]) < SHORT:
                short.setdefault(group, set()).add(cell)
    return [Task(*group, losses[group], frozenset(short.get(group, ()))) for group in sorted(losses)]


def cell_of(trial: Trial) -> Cell:
    """The cell of the table that is nearest to a trial."""
    return trial.global_batch_size, round(2 * math.log2(trial.learning_rate))


def best_so_far(task: Task, cells: Iterator[Cell] | list[Cell], runs: int) -> list[float]:
    """Regret of the best of the first 1 … `runs` cells; 100 (worse than any in the table) while none has a loss."""
    regrets, lowest = [], 100.0
    for cell in cells:
        lowest = min(lowest, task.regret(cell))
        regrets.append(lowest)
    return (regrets + [lowest] * runs)[:runs]
