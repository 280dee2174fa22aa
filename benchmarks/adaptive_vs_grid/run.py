"""How does an adaptive study of a real text compare with the full grid over the same sizes and learning rates?

    python benchmarks/adaptive_vs_grid/run.py [--folder DIR] [--judges N] [--write]

Trains a small decoder on tinyshakespeare (bytes, ../shared/data/README.md), once with a full grid of 6 batch
sizes × 5 learning rates (extended where a best lies at its end), and once with the adaptive search from the same range.
Then both answers are trained again with `--judges` confirmation seeds that neither study used: regret is judged by
those alone (0: by the seeds that both studies ran, one of which chose the cells). One run at a time, on one thread.
Everything is kept in `--folder`, so that an interrupted comparison continues; finished studies are only read. `--write`
writes results.md beside this file.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
import textwrap
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from batchlab.analysis.values import Cell, Interval
from batchlab.core.experiment import build_experiment
from batchlab.core.format import format_interval
from batchlab.core.settings import merge
from batchlab.engines.local import LocalEngine
from batchlab.storage.decisions import GainBound
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings
from batchlab.study.progress import open_view
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task
from batchlab.words.phrases import format_cells
from batchlab.words.search import stop_reason

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "tinyshakespeare" / "input.txt"

SIZES = (4, 8, 16, 32, 64, 128)
RATES = (1.5e-3, 3e-3, 6e-3, 1.2e-2, 2.4e-2)
SEEDS, FIRST_SEED = 5, 100  # of the judges
SHARED = (0, 1, 2)

GIVEN: dict[str, Any] = {
    "sequence_length": 64,
    "model": {"d_model": 64, "layers": 2, "heads": 4, "d_ff": 192},
    "batch": {"global_batch_sizes": SIZES},
    "budget": {"token_budget": 524_288},  # 64 steps of the largest batch, half a pass over the text
    "sweep": {"learning_rates": RATES},
    "evaluation": {"points": 16, "samples": 512},
    "device": {"name": "cpu", "workers": 1, "threads": 1},
}


def settings(name: str, data: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """The study's settings: a small decoder on the text."""
    common = {**GIVEN, "name": name, "data": {"path": str(data)}}
    return merge(merge(resolve_task("quickstart"), common), changes)


def study(folder: Path, values: dict[str, Any]) -> Store:
    """The study in `folder`; what is not finished is run."""
    if not (Store.exists(folder) and Store.open(folder).decisions().complete):
        run_study(build_experiment(values), folder, LocalEngine, open_view(False))
    return Store.open(folder)


@dataclass(frozen=True)
class Came:
    """Cost and answer of a study."""

    cells: int
    searching: int  # runs at the first seed, and the one that measured the noise
    repeats: int
    tokens: int
    seconds: float  # of training, on a machine shared with other programs
    size: int
    rate: float
    loss: Interval
    fresh: int
    noise: float
    tied: tuple[Cell, ...]
    stopped: str


def came_of(store: Store) -> Came:
    findings = read_findings(store)
    surface = findings.surface
    assert surface is not None
    assert surface.best is not None
    assert surface.best.best is not None
    assert surface.best.val_loss is not None
    first = [run for run in findings.runs if run.seed == 0]
    stop = findings.search_stopped
    measured = stop is not None and stop.bound is GainBound.MEASURED_NOISE
    return Came(
        cells=len({(run.global_batch_size, run.learning_rate) for run in first}),
        searching=len(first) + measured,
        repeats=len(findings.runs) - len(first) - measured,
        tokens=sum(run.tokens for run in findings.runs),
        seconds=sum(run.seconds for run in findings.runs),
        size=surface.best.global_batch_size,
        rate=surface.best.best.learning_rate,
        loss=surface.best.val_loss,
        fresh=surface.fresh,
        noise=surface.noise_sd or math.nan,
        tied=surface.tied_cells,
        stopped=stop_reason(stop) if stop else "",
    )


def judge(folder: Path, data: Path, came: Came, judges: int) -> list[float]:
    """Losses of the answer with confirmation seeds that neither study used."""
    changes = {
        "batch": {"global_batch_sizes": (came.size,)},
        "sweep": {"learning_rates": (came.rate,), "seeds": judges, "confirm": 0, "first_seed": FIRST_SEED},
    }
    store = study(folder, settings("judge", data, changes))
    return [run.val_loss for run in read_findings(store).runs if run.val_loss is not None]


def shared_losses(store: Store, came: Came) -> list[float]:
    """Losses of the answer with the seeds that both studies ran at their answers."""
    return [
        run.val_loss
        for run in read_findings(store).runs
        if (run.global_batch_size, run.learning_rate) == (came.size, came.rate)
        and run.seed in SHARED
        and run.val_loss is not None
    ]


def lines_of(grid: Came, adaptive: Came, losses: dict[str, list[float]], judges: int) -> list[str]:
    means = {name: statistics.fmean(values) for name, values in losses.items()}
    lowest = min(means.values())
    rows = []
    for name, came in (("full grid", grid), ("adaptive", adaptive)):
        values = losses[name]
        spread = statistics.stdev(values) / math.sqrt(len(values))
        rows.append(
            f"| {name} | {came.cells} | {came.searching} | {came.repeats} | {came.tokens / 1e6:.1f}M | "
            f"{came.seconds:,.0f} | {came.size} at {came.rate:.3g} | {format_interval(came.loss)} (n = {came.loss.n}) "
            f"| {means[name]:.4f} ± {spread:.4f} | {100 * (means[name] / lowest - 1):.2f} |"
        )
    said = f"{judges} confirmation seeds that neither study used"
    if not judges:
        said = "seeds 0 to 2; seed 0 chose both cells, so both means are lucky"
    error = 100 * math.sqrt(sum(statistics.variance(values) / len(values) for values in losses.values())) / lowest
    return [
        "# An adaptive study and the full grid on a real text",
        "",
        f"Written by `python benchmarks/adaptive_vs_grid/run.py --judges {judges} --write`; do not edit.",
        "",
        _fill(
            f"Python {platform.python_version()}, torch {version('torch')}; {platform.machine()}, "
            f"{platform.system()}, one thread, one run at a time, on a machine shared with other programs. Seconds are "
            "wall-clock and noisy; compare runs and tokens."
        ),
        "",
        _fill(
            f"A decoder of 139,584 parameters on tinyshakespeare (bytes), "
            f"{GIVEN['budget']['token_budget']:,} tokens a run, "
            f"batch {', '.join(map(str, SIZES))}. The grid has learning rates "
            f"{', '.join(f'{rate:g}' for rate in RATES)} and is extended where a best lies at its end; the adaptive "
            "search starts in the same range. One study of each (n = 1): this shows that the search works on a real "
            "text; search_step_law shows how often."
        ),
        "",
        "| search | cells | runs to find | repeats | tokens | seconds | answer | own loss | judged loss | regret % |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        _fill(
            f"Judged loss: mean ± standard error over {said}. Regret is relative to the better of the two; their "
            f"difference has a standard error of {error:.2f} %. Repeats are the seeds that measure the noise and the "
            "loss after the search has ended; the grid here has no confirmation seeds."
        ),
        "",
        _fill(
            f"The adaptive search needed {100 * adaptive.searching / grid.searching:.0f} % of the grid's runs to find "
            f"its answer, and {100 * adaptive.tokens / grid.tokens:.0f} % of its tokens with all repeats. It ended "
            f"because {adaptive.stopped}."
        ),
        "",
        _fill(
            f"Seeds differ by {grid.noise:.4f} (grid) and {adaptive.noise:.4f} (adaptive). Cells statistically tied "
            f"with the best: grid {format_cells(grid.tied)}; adaptive {format_cells(adaptive.tied)}."
        ),
    ]


def _fill(text: str) -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("studies/adaptive_vs_grid"))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--judges", type=int, default=SEEDS, help="confirmation seeds for each answer; 0: none")
    parser.add_argument("--write", action="store_true", help="write results.md")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        print(f"{arguments.data} does not exist. Give the text with --data.")
        return 2
    found, losses = {}, {}
    for name, kind in (("full grid", "grid"), ("adaptive", "adaptive")):
        sweep: dict[str, Any] = {"search": kind} | ({"confirm": 0} if kind == "grid" else {})
        store = study(arguments.folder / kind, settings(kind, arguments.data, {"sweep": sweep}))
        found[name] = came_of(store)
        losses[name] = (
            judge(arguments.folder / f"judge-{kind}", arguments.data, found[name], arguments.judges)
            if arguments.judges
            else shared_losses(store, found[name])
        )
    lines = lines_of(found["full grid"], found["adaptive"], losses, arguments.judges)
    print("\n".join(lines))
    if arguments.write:
        Path(__file__).with_name("results.md").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
