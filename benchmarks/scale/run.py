"""Studies of many runs on many devices: how long the engine's decisions make them, under a clock that only moves when
somebody waits.

The dispatcher, the worker pool, the locks and the files are the real ones. Workers are scripted
(tests/engines/scripted.py): they take half a second to start, and 30 to 300 s per run. Ideal is Σ over rounds of
max(longest run, work ÷ devices); greedy gives each run, in order, to the first free device at no cost.

    python benchmarks/scale/run.py          # writes benchmarks/scale/results.md
"""

from __future__ import annotations

import heapq
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.engines.scripted import ScriptedProcesses, ScriptedWorker, SteppedEngine  # noqa: E402

from batchlab.core.batch import BatchLayout  # noqa: E402
from batchlab.core.experiment import TaskReference  # noqa: E402
from batchlab.core.protocols import Finished  # noqa: E402
from batchlab.core.spec import DeviceSettings, Spec, TrainSpec, Workload  # noqa: E402

RUNS, DEVICES, ROUND = (10, 100, 1000), (1, 4, 16, 64), 20
TICK_SECONDS = 5.0
"""Under the time after which the engine takes itself for suspended."""


class Processes(ScriptedProcesses):
    """Moves the clock to the next event, or by a longer tick than in tests."""

    def wait(self, seconds: float) -> None:
        super().wait(TICK_SECONDS)


@dataclass(frozen=True)
class Measured:
    runs: int
    devices: int
    rounds: int
    seconds: float
    ideal: float
    greedy: float
    cpu_seconds: float
    peak_bytes: int

    @property
    def ratio(self) -> float:
        return self.seconds / self.ideal


def spec_of(seed: int) -> TrainSpec:
    return TrainSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="simulated")),
        layout=BatchLayout(global_batch_size=4, micro_batch_size=4),
        learning_rate=1e-3,
        seed=seed,
        token_budget=160,
        evaluation_interval=4,
        device=DeviceSettings(threads=1),
    )


def measure(runs: int, devices: int, round_size: int) -> Measured:
    """One study, in rounds of so many runs."""
    lengths = [random.Random(seed).uniform(30.0, 300.0) for seed in range(runs)]
    rounds = [range(start, min(start + round_size, runs)) for start in range(0, runs, round_size)]

    def script(worker: ScriptedWorker, spec: Spec) -> None:
        assert isinstance(spec, TrainSpec)
        worker.later(lengths[spec.seed], worker.finish)

    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder), script)
        engine = SteppedEngine(processes, workers=devices, cores=devices)
        begun, cpu = processes.clock.seconds, time.process_time()
        for one in rounds:
            carry_out(engine, [spec_of(seed) for seed in one])
        seconds, cpu = processes.clock.seconds - begun, time.process_time() - cpu
        engine.close()
    ideal = sum(max(max(lengths[i] for i in one), sum(lengths[i] for i in one) / devices) for one in rounds)
    greedy = sum(greedy_seconds([lengths[i] for i in one], devices) for one in rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Measured(runs, devices, len(rounds), seconds, ideal, greedy, cpu / runs, peak)


def greedy_seconds(lengths: Sequence[float], devices: int) -> float:
    """Until all runs have ended, each of which begins on the device that is free first."""
    free = [0.0] * devices
    for length in lengths:
        heapq.heappush(free, heapq.heappop(free) + length)
    return max(free)


def carry_out(engine: SteppedEngine, specs: Sequence[TrainSpec]) -> None:
    for spec in specs:
        engine.submit(spec)
    left = len(specs)
    while left:
        left -= sum(isinstance(event, Finished) for event in engine.wait(3600.0))


def main() -> None:
    rows = []
    for runs in RUNS:
        for devices in DEVICES:
            whole, parts = measure(runs, devices, runs), measure(runs, devices, ROUND)
            rows.append((whole, parts))
            print(runs, devices, f"{whole.ratio:.3f} {parts.ratio:.3f}", flush=True)
    (Path(__file__).parent / "results.md").write_text(text_of(rows), encoding="utf-8")


def text_of(rows: Sequence[tuple[Measured, Measured]]) -> str:
    worst = max(one.ratio for row in rows for one in row)
    lines = [
        "# Many runs on many devices",
        "",
        f"`python benchmarks/scale/run.py` · Python {platform.python_version()} · {os.cpu_count()} cores, shared",
        "",
        "Seconds are simulated; runs take 30 to 300 s, and a worker half a second to start. Ideal is Σ over rounds of",
        "max(longest run, work ÷ devices), which no packing need reach; greedy gives a run to the first free device.",
        "CPU and memory are those of the one process that has the engine and the scripted workers of all rows so far.",
        "",
        f"| runs | devices | ÷ ideal | ÷ ideal, rounds of {ROUND} | ÷ greedy, same | rounds cost | CPU, run | memory |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for whole, parts in rows:
        lines.append(
            f"| {whole.runs:,} | {whole.devices} | {whole.ratio:.3f} | {parts.ratio:.3f} | "
            f"{parts.seconds / parts.greedy:.3f} | {parts.seconds / whole.seconds:.2f} × | "
            f"{1e3 * parts.cpu_seconds:.1f} ms | {parts.peak_bytes / 2**20:.0f} MiB |"
        )
    verdict = "reached" if worst <= 1.1 else "missed"
    engine = max(one.seconds / one.greedy for row in rows for one in row)
    goal = (
        f"Goal: at most 1.1 × ideal; the largest is {worst:.3f}: {verdict}. Beside greedy the largest is {engine:.3f}."
    )
    return "\n".join([*lines, "", goal, ""])


if __name__ == "__main__":
    main()
