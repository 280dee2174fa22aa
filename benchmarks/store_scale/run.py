"""What a study's commands cost as it grows: report, status, resume, and the documents between two runs.

python benchmarks/store_scale/run.py --folder SCRATCH writes results.md. Each measurement is a fresh process, imports
included. CPU seconds are compared, because other programs make the wall time of a shared machine say little; both are
in the table. Studies are made once and kept in SCRATCH, about 0.3 GB for 1,000 runs of 1,000 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pydantic
from make import experiment, make_study

from batchlab.core.clock import SystemClock
from batchlab.core.protocols import Event
from batchlab.core.spec import Spec
from batchlab.storage.store import Store
from batchlab.study.documents import SHARE, Documents
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study

RUNS = (100, 300, 1000)
ROWS = 1000
RUN_SECONDS = 30.0
"""Length of a run that the cost of documents is compared with."""

GOALS = {"report": 10.0, "status": 1.0, "resume": 3.0}
"""Seconds at the largest study."""

MOST_MEMORY, LARGEST_PAGE = 500e6, 8e6


class SteppedClock(SystemClock):
    """A clock on which the wait between two writings is over whenever it is asked."""

    seconds = 0.0

    def monotonic(self) -> float:
        """An hour later."""
        self.seconds += 3600
        return self.seconds


class Submitted(Exception):
    """The study has come to its first new run."""


class Stops:
    """An engine that ends the study where it would begin to execute."""

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        """Print the seconds until here, and raise Submitted."""
        print(json.dumps({"cpu": time.process_time(), "until": time.monotonic()}))
        raise Submitted

    def wait(self, timeout: float) -> list[Event]:
        """Nothing runs."""
        return []

    def close(self) -> None:
        """Nothing is held."""


def resume(folder: Path, runs: int) -> None:
    """The study command up to the first run that is missing, one of the last round: a further seed of a best cell."""
    missing = max(folder.glob("runs/train-*-s[1-9]*/record.json"), key=lambda path: path.parent.name.split("-s")[-1])
    aside = missing.with_name("record.aside")
    missing.rename(aside)
    try:
        run_study(experiment(runs), folder, lambda path, workers: Stops(), SilentView(), write_documents=False)
    except Submitted:
        pass
    else:
        raise AssertionError("nothing was missing")
    finally:
        aside.rename(missing)


def document(folder: Path, runs: int) -> None:
    """Documents after one more run, in a process that has written them before; prints seconds of its own."""
    clock = SteppedClock()
    kept = Documents(Store.open(folder, clock=clock), SilentView())
    kept.run_ended()
    kept.refresh()
    ended = max(folder.glob("runs/train-*"))
    for name in ("metrics.jsonl", "record.json"):
        (ended / name).touch()  # it counts as new
    clock.seconds += 1e9
    begun, cpu = time.monotonic(), time.process_time()
    kept.run_ended()
    kept.refresh()
    print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.monotonic() - begun}))


MEASURED_HERE: dict[str, Callable[[Path, int], object]] = {"resume": resume, "document": document}
"""What is measured by calling functions, in a process of this file."""

COMMANDS = ("report", "status")
MEASUREMENTS = (*COMMANDS, *MEASURED_HERE)

USED = """
import json, resource
used = resource.getrusage(resource.RUSAGE_SELF)
# getrusage would count the memory of the parent, from before the program began
peak = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) * 1024
print()
print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "peak": peak}))
"""

COMMAND = f"import sys\nfrom batchlab.cli.app import run\nrun(sys.argv[1:])\n{USED}"
"""A command as a person gives it, which imports nothing that this file does."""


def measured(what: str, folder: Path, runs: int) -> dict[str, float]:
    """CPU and wall seconds and peak bytes of one measurement in a process of its own."""
    begun = time.monotonic()
    if what in COMMANDS:
        arguments = [sys.executable, "-c", COMMAND, what, str(folder)]
    else:
        arguments = [sys.executable, __file__, "--measure", what, "--folder", str(folder), "--runs", str(runs)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    wall = time.monotonic() - begun
    *printed, last = filter(None, done.stdout.splitlines())
    used: dict[str, float] = {"wall": wall, **json.loads(last)}
    if what in MEASURED_HERE:  # it measured itself
        used |= json.loads(printed[-1])
    if "until" in used:
        used["wall"] = used["until"] - begun
    return used


def page(folder: Path, results: dict[str, dict[int, list[dict[str, float]]]], rows: int, repetitions: int) -> str:
    """results.md."""
    numbers = list(results["report"])
    first, last = numbers[0], numbers[-1]
    trained = {runs: len(list((folder / f"{runs}").glob("runs/train-*"))) for runs in numbers}
    lines = [
        "# What a growing study costs",
        "",
        f"`python benchmarks/store_scale/run.py --folder SCRATCH` on {platform.platform()}, {os.cpu_count()} cores "
        f"shared with other programs (load {os.getloadavg()[0]:.1f} at the end), Python {platform.python_version()}, "
        f"numpy {numpy.__version__}, pydantic {pydantic.__version__}, one thread. "
        f"{len(numbers)} studies on the simulated device with "
        f"{', '.join(f'{trained[runs]:,}' for runs in numbers)} training runs of {rows:,} metric rows each. "
        f"n = {repetitions} processes per entry, in turn over all entries; median [lowest, highest].",
        "",
        "CPU seconds, imports included except for documents:",
        "",
        "| | " + " | ".join(f"{trained[runs]:,} runs" for runs in numbers) + " | growth | runs grow by |",
        "|---|" + "---|" * (len(numbers) + 2),
    ]
    runs_ratio = trained[last] / trained[first]
    for what, by_runs in results.items():
        entries = {runs: [one["cpu"] for one in found] for runs, found in by_runs.items()}
        growth = statistics.median(entries[last]) / statistics.median(entries[first])
        name = "documents between two runs" if what == "document" else f"`{what}`"
        texts = " | ".join(spread(values) for values in entries.values())
        lines.append(f"| {name} | {texts} | {growth:.1f} × | {runs_ratio:.1f} × |")
    lines += [
        "",
        f"Goals at {trained[last]:,} runs:",
        "",
        "| goal | CPU | wall, this machine | met |",
        "|---|---|---|---|",
    ]
    for what, goal in GOALS.items():
        found = results[what][last]
        cpu, wall = [one["cpu"] for one in found], [one["wall"] for one in found]
        met = _met(statistics.median(cpu) <= goal, statistics.median(wall) <= goal)
        lines.append(f"| `{what}` ≤ {goal:g} s | {spread(cpu)} s | {spread(wall)} s | {met} |")
    peak = max(one["peak"] for one in results["report"][last])
    html = (folder / f"{last}" / "report.html").stat().st_size
    cost = statistics.median(one["cpu"] for one in results["document"][last])
    wall = statistics.median(one["wall"] for one in results["document"][last])
    share = cost / RUN_SECONDS
    lines += [
        f"| `report` ≤ {MOST_MEMORY / 1e6:.0f} MB at its peak | {peak / 1e6:.0f} MB | | {_yes(peak <= MOST_MEMORY)} |",
        f"| report.html ≤ {LARGEST_PAGE / 1e6:.0f} MB | {html / 1e6:.1f} MB | | {_yes(html <= LARGEST_PAGE)} |",
        f"| documents ≤ 2 % of a {RUN_SECONDS:g}-second run, written after every run | {100 * share:.1f} % | "
        f"{100 * wall / RUN_SECONDS:.1f} % | {_met(share <= 0.02, wall <= 0.02 * RUN_SECONDS)} |",
        f"| the same with the wait that a study keeps between two writings | at most {100 * SHARE:g} % of its time | "
        f"at most {100 * SHARE:g} % | by construction: a writing of s seconds is followed by s / {SHARE:g} without |",
        "",
    ]
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Median [lowest, highest]."""
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def _yes(met: bool) -> str:
    return "yes" if met else "**no**"


def _met(cpu: bool, wall: bool) -> str:
    return _yes(cpu) if cpu == wall else ("in CPU time, not in wall time" if cpu else "**not in CPU time**")


def main() -> None:
    """Measure everything, or (--measure) one thing in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="where the studies are made and kept")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--sizes", default=",".join(map(str, RUNS)), help="numbers of training runs")
    parser.add_argument("--measure", choices=MEASURED_HERE)
    parser.add_argument("--runs", type=int)
    arguments = parser.parse_args()
    if arguments.measure:
        MEASURED_HERE[arguments.measure](arguments.folder, arguments.runs)
        exec(USED)
        return
    numbers = [int(text) for text in arguments.sizes.split(",")]
    for runs in numbers:
        folder = arguments.folder / f"{runs}"
        if not Store.exists(folder):
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make_study(unfinished, runs, arguments.rows)
            unfinished.rename(folder)
            print(f"made {folder}", file=sys.stderr)
    results: dict[str, dict[int, list[dict[str, float]]]] = {what: {n: [] for n in numbers} for what in MEASUREMENTS}
    for _ in range(arguments.repetitions):
        for runs in numbers:
            for what in MEASUREMENTS:
                results[what][runs].append(measured(what, arguments.folder / f"{runs}", runs))
                print(what, runs, results[what][runs][-1], file=sys.stderr)
    text = page(arguments.folder, results, arguments.rows, arguments.repetitions)
    Path(__file__).with_name("results.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
