"""The largest batch under a memory limit: batchlab, Lightning, accelerate and a +16 search against the true size.

    pip install -r benchmarks/capacity_vs_peers/requirements.txt
    python benchmarks/capacity_vs_peers/run.py

An interrupted benchmark continues where it stopped; results.md and results.csv are written at the end. Every answer
comes from a fresh process that is warmed up before its memory is limited (see child.py). Answers are kept in
studies/capacity_vs_peers/cells.jsonl, one per line, and only missing ones are computed. `--rows decoder-1.5GB` selects
rows, `--tools truth,power` selects columns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ours import OURS, ask_batchlab, sources
from table import write_results
from truth import largest_fitting

HERE = Path(__file__).parent
CELLS = Path("studies/capacity_vs_peers/cells.jsonl")

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # with these three, equal allocations take equal memory each time, in every tool
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
}
PEERS = ("power", "binsearch", "accelerate", "plus16")


@dataclass(frozen=True)
class Row:
    """One workload under one limit. `guess` only saves time in the search for the true size."""

    workload: str
    limit: int
    guess: int

    @property
    def name(self) -> str:
        return f"{self.workload}-{self.limit / 1e9:g}GB"

    @property
    def task_file(self) -> Path:
        return HERE / "workloads" / f"{self.workload}.py"


ROWS = (
    Row("decoder", 1_500_000_000, 57),
    Row("decoder", 800_000_000, 28),
    Row("convnet", 350_000_000, 70),
    Row("convnet", 600_000_000, 122),
    Row("gpt2", 2_000_000_000, 18),
    Row("gpt2", 1_200_000_000, 10),
    Row("lstm", 150_000_000, 28),
    Row("lstm", 300_000_000, 55),
    Row("vit", 150_000_000, 44),
    Row("vit", 300_000_000, 127),
    Row("lengths", 150_000_000, 32),
    Row("lengths", 300_000_000, 66),
)


class Cells:
    """Answers on disk, keyed by (row, column)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> dict[tuple[str, str], dict[str, Any]]:
        if not self._path.exists():
            return {}
        cells = [json.loads(line) for line in self._path.read_text().splitlines()]
        return {(cell["row"], cell["column"]): cell for cell in cells}

    def write(self, row: Row, column: str, content: dict[str, Any]) -> None:
        line = json.dumps({"row": row.name, "column": column, **content}) + "\n"
        with self._path.open("a") as file:
            file.write(line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="names separated by commas (default: all)")
    parser.add_argument("--tools", default="", help=f"any of truth,{','.join((*PEERS, *OURS))} (default: all)")
    arguments = parser.parse_args()
    wanted_rows = set(filter(None, arguments.rows.split(",")))
    wanted = set(filter(None, arguments.tools.split(","))) or {"truth", *PEERS, *OURS}
    cells = Cells(CELLS)
    for number, row in enumerate(ROWS):
        if wanted_rows and row.name not in wanted_rows:
            continue
        if "truth" in wanted and (row.name, "truth") not in cells.read():
            cells.write(row, "truth", _find_truth(row, cells))
        tools = [*PEERS, *OURS]
        for tool in tools[number % len(tools) :] + tools[: number % len(tools)]:  # so that no tool always runs first
            if tool in wanted and (row.name, tool) not in cells.read():
                cells.write(row, tool, _timed(_ask_ours if tool in OURS else _ask, row, tool))
    write_results([row.name for row in ROWS], cells.read(), HERE)
    return 0


def _find_truth(row: Row, cells: Cells) -> dict[str, Any]:
    def fits(size: int, attempt: int) -> bool:
        column = f"fits-{size}-{attempt}"
        known = cells.read().get((row.name, column))
        if known is None:
            known = _ask(row, f"fits-{size}")
            cells.write(row, column, known)
        return known["found"] is not None

    truth = largest_fitting(fits, row.guess)
    return {"found": truth.largest, "flips": truth.flips}


def _timed(ask: Callable[[Row, str], dict[str, Any]], row: Row, tool: str) -> dict[str, Any]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    answer = ask(row, tool)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**answer, "wall": round(time.perf_counter() - started, 2), "processor": round(processor, 2)}


def _ask_ours(row: Row, tool: str) -> dict[str, Any]:
    made = {"sources": sources()}
    return made | ask_batchlab(row.task_file, row.limit, tool, {**os.environ, **ENVIRONMENT})


def _ask(row: Row, tool: str) -> dict[str, Any]:
    """The child's answer; a child that dies without an answer found nothing."""
    done = subprocess.run(
        [sys.executable, str(HERE / "child.py"), str(row.task_file), tool, str(row.limit)],
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        check=False,
    )
    if done.returncode == 0:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    last = done.stderr.splitlines()[-1] if done.stderr else ""
    return {"found": None, "trials": 1, "out_of_memory": 1, "steps": 0, "error": f"exit {done.returncode}: {last}"}


if __name__ == "__main__":
    raise SystemExit(main())
