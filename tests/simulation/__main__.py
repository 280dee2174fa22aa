"""Histories by their seeds: `PYTHONPATH=src python -m tests.simulation --seeds 0 2000`, or `--seed 17` traced."""

from __future__ import annotations

import argparse
import sys
import time

from tests.injections import table
from tests.simulation.faults import plan
from tests.simulation.histories import history
from tests.simulation.summary import failures, rows


def main() -> int:
    """Live through them; 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 100), metavar=("FIRST", "END"))
    parser.add_argument("--seed", type=int, help="one history, with every operation on the disk")
    asked = parser.parse_args()
    if asked.seed is not None:
        told = history(asked.seed, traced=True)
        print(*told.trace, plan(asked.seed), *(told.wrong or ["nothing is wrong"]), sep="\n")
        return bool(told.wrong)
    begun, found = time.process_time(), []
    for seed in range(*asked.seeds):
        found.append(history(seed))
        if found[-1].wrong:
            print(failures(found[-1:]), flush=True)
    print(*table(rows(found)), sep="\n")
    print(f"{(time.process_time() - begun) / max(1, len(found)):.3f} CPU seconds a history")
    return any(each.wrong for each in found)


if __name__ == "__main__":
    sys.exit(main())
