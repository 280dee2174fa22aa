"""What would stopping dominated runs early save, and how often would it discard the winner?

    python benchmarks/early_stopping/run.py STUDY [STUDY ...] [--write]

Replays the evaluations of finished runs. The rule under test: at a given share of its budget a run is stopped if its
held-out loss is above the lowest of all earlier runs after the same tokens by more than a margin in percent. A search
is simulated by a random set of a study's cells in random order, as many as an adaptive search takes; the winner of a
set is the run with the lowest final loss. Diverged runs, which a study always stops, are left out: the question is
about dominated runs. `--write` writes results.md beside this file.
"""

from __future__ import annotations

import argparse
import platform
import sys
import textwrap
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from batchlab.core.record import TrainResult
from batchlab.core.spec import TrainSpec
from batchlab.storage.store import Store

SHARES = (0.25, 0.5, 0.75)
MARGINS = (0.01, 0.03, 0.1, 0.3)
SETS, IN_A_SET = 4000, 10


@dataclass(frozen=True)
class Curve:
    """Held-out losses of one run after equal shares of its budget; the last one is the final loss."""

    size: int
    rate: float
    losses: tuple[float, ...]


def curves_of(folder: Path) -> list[Curve]:
    """The runs with the study's first seed, one per cell, in the order in which they ended."""
    store = Store.open(folder)
    first = store.experiment.sweep.first_seed
    found = []
    ended = sorted(store.records(), key=lambda pair: (folder / "runs" / pair[1].run_id / "record.json").stat().st_mtime)
    for spec, record in ended:
        result = record.result
        if not isinstance(spec, TrainSpec) or not isinstance(result, TrainResult):
            continue
        if result.val_loss is not None and spec.seed == first and not result.undertrained:
            losses = tuple(loss for _, loss in result.val_curve)
            found.append(Curve(spec.layout.global_batch_size, spec.learning_rate, losses))
    return found


def replay(curves: list[Curve], share: float, margin: float) -> tuple[float, bool, float]:
    """(share of the tokens saved, whether the winner was stopped, excess loss of the best remaining run in percent)."""
    points = len(curves[0].losses)
    at = max(1, round(share * points)) - 1
    lowest = np.inf
    saved, left = 0.0, []
    for curve in curves:
        if curve.losses[at] > lowest * (1 + margin):
            saved += 1 - (at + 1) / points
        else:
            left.append(curve.losses[-1])
        lowest = min(lowest, curve.losses[at])
    best = min(curve.losses[-1] for curve in curves)
    return saved / len(curves), best not in left, 100 * (min(left) / best - 1)


def own_order(curves: list[Curve]) -> list[str]:
    """The same for the runs in the order in which the study's own search chose them."""
    said = []
    for margin in MARGINS[1:3]:
        saved, lost, regret = replay(curves, SHARES[0], margin)
        kept = f"winner lost, {regret:.2f} %" if lost else "winner kept"
        said.append(f"{100 * saved:.0f} % of the tokens with a margin of {100 * margin:g} % ({kept})")
    return said


def rows_of(curves: list[Curve], dice: np.random.Generator) -> list[str]:
    sets = [[curves[i] for i in dice.permutation(len(curves))[:IN_A_SET]] for _ in range(SETS)]
    rows = []
    for share in SHARES:
        for margin in MARGINS:
            found = [replay(one, share, margin) for one in sets]
            saved, lost, regret = (np.array(column, dtype=float) for column in zip(*found, strict=True))
            costs = regret[lost > 0]
            worst = f"{np.median(costs):.2f} / {costs.max():.2f}" if len(costs) else "–"
            rows.append(
                f"| {100 * share:g} % | {100 * margin:g} % | {100 * saved.mean():.0f} | {100 * lost.mean():.1f} "
                f"| {worst} |"
            )
    return rows


def flips(curves: list[Curve]) -> str:
    """How far the rankings along the way differ from the final one."""
    final = np.array([curve.losses[-1] for curve in curves])
    points = len(curves[0].losses)
    said = []
    for share in SHARES:
        at = max(1, round(share * points)) - 1
        then = np.array([curve.losses[at] for curve in curves])
        winner = int(final.argmin())
        place = int((then < then[winner]).sum()) + 1
        pairs = [(i, j) for i in range(len(final)) for j in range(i) if final[i] != final[j]]
        turned = np.mean([(then[i] - then[j]) * (final[i] - final[j]) < 0 for i, j in pairs])
        said.append(
            f"after {100 * share:g} % the winner was number {place}, "
            f"and {100 * turned:.0f} % of all pairs were reversed"
        )
    return "; ".join(said)


def _fill(text: str) -> str:
    return textwrap.fill(text, 120)


def lines_of(folders: list[Path]) -> list[str]:
    lines = [
        "# Stopping dominated runs early: savings and losses",
        "",
        "Written by `python benchmarks/early_stopping/run.py STUDY … --write`; do not edit.",
        "",
        f"Python {platform.python_version()}, numpy {version('numpy')}; {platform.machine()}, {platform.system()}. "
        f"{SETS:,} random sets of {IN_A_SET} cells per study.\nAt the given share of its budget, a run is stopped if "
        "its loss is above the lowest loss of the earlier runs\nafter the same tokens by more than the margin. "
        "Deterministic.",
        "",
    ]
    for folder in folders:
        curves = curves_of(folder)
        experiment = Store.open(folder).experiment
        if len(curves) < 2:
            raise SystemExit(f"{folder} has {len(curves)} finished cells. At least two are needed.")
        sizes = sorted({curve.size for curve in curves})
        lines += [
            f"### {experiment.name}: {len(curves)} cells, batch {sizes[0]} to {sizes[-1]}, {experiment.schedule.kind} "
            f"schedule, {len(curves[0].losses)} evaluations",
            "",
            _fill(f"Changes of ranking: {flips(curves)}."),
            "",
            _fill(
                f"In the order in which the study's own search ({experiment.sweep.search}) ran them, stopping at "
                f"{100 * SHARES[0]:g} % would have saved {' and '.join(own_order(curves))}."
            ),
            "",
        ]
        if len(curves) < IN_A_SET:
            continue
        lines += [
            "| stopped at | margin | tokens saved % | winner lost % | excess loss then, %, median / worst |",
            "|---|---|---|---|---|",
            *rows_of(curves, np.random.default_rng(0)),
            "",
        ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="+", help="folders of finished studies")
    parser.add_argument("--write", action="store_true", help="write results.md")
    arguments = parser.parse_args()
    lines = lines_of(arguments.studies)
    print("\n".join(lines))
    if arguments.write:
        Path(__file__).with_name("results.md").write_text("\n".join(lines).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
