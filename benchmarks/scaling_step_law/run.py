"""Do the scaling rules predict the learning rate at another batch size, and the optimum at another budget?

    python benchmarks/scaling_step_law/run.py

Tested on real runs: reads the Step Law table (arXiv:2503.04715; 12 tasks of about 118 runs, not part of this
repository) and the table of Marek et al. (arXiv:2507.07101) from ../shared/data, and writes results.md beside this
file. Nothing is trained. Only the bootstrap is random, and its seed is fixed.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy
from batches import batch_moves, half_life_moves
from budgets import budget_moves, size_moves
from table import Task, read_tasks

import batchlab

HERE = Path(__file__).parent
DATA = HERE.parents[1] / ".." / "shared" / "data"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with steplaw/ and marek2025_small_batch/")
    parser.add_argument("--out", type=Path, default=HERE / "results.md")
    arguments = parser.parse_args()
    path = arguments.data / "steplaw" / "dense_lr_bs_loss.csv"
    if not path.is_file():
        print(
            "The Step Law table (steplaw/dense_lr_bs_loss.csv) was not found. Give its folder with --data.",
            file=sys.stderr,
        )
        return 2
    tasks = read_tasks(path)
    marek = arguments.data / "marek2025_small_batch" / "lm11m_adam_best_by_batch.csv"
    text = "\n\n".join(
        [
            _head(tasks),
            *batch_moves(tasks),
            *budget_moves(tasks),
            *size_moves(tasks),
            *(half_life_moves(marek) if marek.is_file() else ["## 4. Marek et al.: the table is not available."]),
        ]
    )
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


def _head(tasks: Sequence[Task]) -> str:
    cells = sum(len(row) for task in tasks for row in task.loss.values())
    return f"""# Scaling rules on the Step Law table

    python benchmarks/scaling_step_law/run.py

{platform.machine()}, {platform.system()}, Python {platform.python_version()}, numpy {np.__version__},
scipy {scipy.__version__}, batchlab {batchlab.__version__}. No device: a table is read, nothing is trained.
{len(tasks)} tasks (3 model sizes × 4 budgets), {cells:,} runs, one seed each. All have the same beta2, weight decay and
final learning rate.

Regret is in % of the loss: loss at the extrapolated configuration ÷ lowest measured loss − 1. Between tried learning
rates the loss is interpolated monotonically; outside them the outermost run counts. The noise of one run is about
0.08 %. Moves share runs, so n overstates the evidence: the independent units are 12 tasks of 3 sizes. [Brackets] after
a 90th percentile are a 90 % bootstrap interval over tasks. These tasks also served to choose among rules (1b); the
final test is model sizes that are not in the table."""


if __name__ == "__main__":
    raise SystemExit(main())
