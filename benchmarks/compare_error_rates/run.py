"""How often does `batchlab compare` call a side better that is not, and how often does it find one that is?

    python benchmarks/compare_error_rates/run.py [--pairs N] [--final] [--write]

Draws N pairs of sweeps. Each has a grid of batch sizes and learning rates at one seed, further seeds at its best cell,
and confirmation seeds or none. In half of the pairs both sides have the same expected losses; in the others one side is
lower by as much as its seeds should show with 80 % probability. A "better" is false where the expected loss of that
side's best cell is not the lower one: sides with the same expected losses may choose different cells. Without --final
the seed is that of development; with it the operating system draws it, which takes a committed working tree.
"""

from __future__ import annotations

import argparse
import math
import platform
import secrets
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator

from batchlab.analysis.comparison import Side, Verdict, compare
from batchlab.analysis.sweep.cost import POWER
from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.values import Cell, Run
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.pairing import Pairing
from batchlab.core.record import Outcome

SIZES, RATES = (8, 16, 32, 64), (1e-3, 2e-3, 4e-3)
CONFIRMATION = 1000
"""First of the confirmation seeds."""

DESIGNS = {
    "3 confirmation seeds": (3, True, Pairing.NONE),
    "6 confirmation seeds, paired": (6, True, Pairing.VERIFIED),
    "3 seeds, none for confirmation": (3, False, Pairing.NONE),
}
"""Name → seeds of the best cell, whether they are for confirmation, pairing."""


def run(size: int, rate: float, seed: int, loss: float, pairing: Pairing) -> Run:
    return Run(
        run_id=f"{size}-{rate}-{seed}",
        layout=BatchLayout(global_batch_size=size, micro_batch_size=size),
        learning_rate=rate,
        seed=seed,
        outcome=Outcome.COMPLETED,
        reason="",
        steps=1000,
        tokens=1_000_000,
        undertrained=False,
        val_loss=loss,
        train_loss=None,
        clipped_fraction=None,
        epochs=1.0,
        seconds=1.0,
        tokens_per_second=None,
        peak_bytes=None,
        pairing=pairing,
    )


def sweep(
    random: Generator, name: str, truth: dict[tuple[int, float], float], sd: float, shared: np.ndarray, design: str
) -> Side:
    """A side: the best of the grid is run again. `shared`: what a seed adds to both sides where they are paired."""
    seeds, confirms, pairing = DESIGNS[design]

    def loss(cell: tuple[int, float], place: int) -> float:
        own = math.sqrt(1 - 0.7) if pairing is Pairing.VERIFIED else 1.0
        together = math.sqrt(0.7) * shared[place] if pairing is Pairing.VERIFIED else 0.0
        return truth[cell] + sd * (own * random.normal() + together)

    runs = {cell: [run(*cell, 0, loss(cell, 0), pairing)] for cell in truth}
    best = min(runs, key=lambda cell: runs[cell][0].val_loss or 0.0)
    first = CONFIRMATION if confirms else 1
    count = seeds if confirms else seeds - 1
    runs[best] += [run(*best, first + place, loss(best, 1 + place), pairing) for place in range(count)]
    cells = tuple(Cell(*cell, tuple(found)) for cell, found in runs.items())
    return Side(
        name=name,
        best=next(cell for cell in cells if len(cell.runs) > 1),
        cells=cells,
        confirmation_seeds=frozenset(range(CONFIRMATION, CONFIRMATION + seeds)),
        unit=Unit.TOKENS,
        sequence_length=1,
        token_budget=1_000_000,
        run_seconds=None,
        held_out="same",
        pairing=pairing,
        slope=None,
        settings={},
    )


def promised(design: str) -> float:
    """The difference in standard deviations of one seed that should be found with probability POWER."""
    seeds, confirms, pairing = DESIGNS[design]
    df = (seeds - 1) if pairing is Pairing.VERIFIED else 2 * (seeds if confirms else seeds - 1)
    variance = 2 * (0.3 if pairing is Pairing.VERIFIED else 1.0) / seeds
    return (t_quantile(0.5 + CONFIDENCE / 2, df) + t_quantile(POWER, df)) * math.sqrt(variance)


@dataclass(frozen=True)
class Judged:
    """What was said, and how much lower the expected loss of the second side's best cell is."""

    verdict: Verdict | None
    lower: float

    @property
    def false(self) -> bool:
        better, worse = self.verdict is Verdict.BETTER, self.verdict is Verdict.WORSE
        return (better and self.lower <= 0) or (worse and self.lower >= 0)


def judge(random: Generator, design: str, differ: bool) -> Judged:
    floor, sd = random.uniform(1.5, 4), 10 ** random.uniform(-3, -2)
    place, rate = random.uniform(0.5, 2.5), random.uniform(0.5, 1.5)
    bend = random.uniform(3, 30) * sd
    truth = {
        (size, lr): floor + bend * ((i - place) ** 2 + (j - rate) ** 2)
        for i, size in enumerate(SIZES)
        for j, lr in enumerate(RATES)
    }
    lower = {cell: loss - (promised(design) * sd if differ else 0.0) for cell, loss in truth.items()}
    shared = random.normal(size=10)
    first, second = sweep(random, "A", truth, sd, shared, design), sweep(random, "B", lower, sd, shared, design)
    return Judged(compare(first, second).verdict, truth[_chosen(first)] - lower[_chosen(second)])


def _chosen(side: Side) -> tuple[int, float]:
    assert side.best is not None
    return side.best.global_batch_size, side.best.learning_rate


def page(seed: int, pairs: int, final: bool) -> str:
    random = np.random.default_rng(seed)
    counts: dict[tuple[str, bool], list[Judged]] = defaultdict(list)
    begun = time.process_time()
    for number in range(pairs):
        design = list(DESIGNS)[number % len(DESIGNS)]
        differ = bool(number // len(DESIGNS) % 2)
        counts[design, differ].append(judge(random, design, differ))
    lines = [
        "# How often a comparison is wrong",
        "",
        "Written by `python benchmarks/compare_error_rates/run.py --final --write`; do not edit."
        if final
        else "Seed of development.",
        "",
        f"{pairs} simulated pairs of sweeps, each distinct; seed {seed}, commit {_git('rev-parse', 'HEAD')}, Python "
        f"{platform.python_version()}, {time.process_time() - begun:.0f} s of CPU.",
        "",
        "False: a side is called better whose best cell is not expected to be (goal ≤ 5 %). Found: the better side is "
        "called better, where it leads by what its seeds should show with 80 % probability.",
        "",
        "| design | equal pairs | false | different pairs | found | false |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for design in DESIGNS:
        equal, different = counts[design, False], counts[design, True]
        found = sum(one.verdict is Verdict.BETTER for one in different)
        lines.append(
            f"| {design} | {len(equal)} | {_share_false(equal)} | {len(different)} | "
            f"{100 * found / len(different):.1f} % | {_share_false(different)} |"
        )
    return "\n".join(lines) + "\n"


def _share_false(judged: Sequence[Judged]) -> str:
    return f"{100 * sum(one.false for one in judged) / len(judged):.1f} %"


def _git(*words: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6000)
    parser.add_argument("--final", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    if given.final and _git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("The final seed is drawn after the code is committed; commit first.")
    text = page(secrets.randbits(64) if given.final else 0, given.pairs, given.final)
    print(text, end="")
    if given.write:
        (Path(__file__).parent / "results.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
