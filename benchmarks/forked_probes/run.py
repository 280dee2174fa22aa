"""Does a probe in a forked process need the memory that it needs in a new one?

    python benchmarks/forked_probes/run.py            # results.md; about 10 minutes of an idle core

Each workload of benchmarks/capacity_vs_peers is probed at one size, several times each way, alternating: in a process
that is started for it, and in one forked from a process that has loaded the task and trained nothing. Everything else
is the product's own: the same engine, worker and spec. Written for each way: the peak of VmData above the baseline,
the baseline, and the processor seconds of all processes, from which the start of Python and torch can be seen.
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import tempfile
import textwrap
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Finished
from batchlab.core.record import CapacityResult, Record
from batchlab.core.spec import CapacitySpec, DeviceSettings, OptimizerSettings, Workload
from batchlab.engines.command import HERE
from batchlab.engines.local import LocalEngine

HERE_FOLDER = Path(__file__).parent
WORKLOADS = HERE_FOLDER.parent / "capacity_vs_peers" / "workloads"
SIZES = {"decoder": 14, "convnet": 34, "gpt2": 4, "lstm": 12, "vit": 30, "lengths": 16}
LIMIT = 3_000_000_000
MIB = 2**20


@dataclass(frozen=True)
class Measured:
    """One probe. Bytes as recorded; seconds of a processor for all its processes."""

    peak: int
    baseline: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workloads", default=",".join(SIZES))
    asked = parser.parse_args()
    lines = []
    for name in asked.workloads.split(","):
        ways: dict[str, list[Measured]] = {"new": [], "forked": []}
        for _ in range(asked.repeats):
            for way, found in ways.items():
                found.append(_probe(name, way))
        lines.append(_line(name, ways["new"], ways["forked"]))
        print(lines[-1], flush=True)
    (HERE_FOLDER / "results.md").write_text(_page(lines, asked.repeats))
    return 0


def _probe(name: str, way: str) -> Measured:
    task = TaskReference(kind="file", target=str(WORKLOADS / f"{name}.py"))
    spec = CapacitySpec(
        workload=Workload(task=task),
        micro_batch_size=SIZES[name],
        grad_accum_steps=1,
        evaluation_batch_size=SIZES[name],
        optimizer=OptimizerSettings(),
        device=DeviceSettings(memory_limit=LIMIT),
    )
    command = HERE if way == "forked" else replace(HERE, fork_server=())
    before = _seconds()
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(Path(folder), 1, command=command)
        try:
            engine.submit(spec, exclusive=True)
            record = _record(engine)
        finally:
            engine.close()
    result = record.result
    assert record.process == way, record
    assert isinstance(result, CapacityResult), record
    assert result.peak_bytes is not None, record
    assert result.baseline_bytes is not None, record
    return Measured(result.peak_bytes, result.baseline_bytes, _seconds() - before)


def _record(engine: LocalEngine) -> Record:
    while True:
        for event in engine.wait(1.0):
            if isinstance(event, Finished):
                return event.record


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _line(name: str, new: list[Measured], forked: list[Measured]) -> str:
    difference = statistics.median(m.peak for m in forked) - statistics.median(m.peak for m in new)
    share = difference / statistics.median(m.peak for m in new)
    cells = [
        f"{name} at {SIZES[name]}",
        _range([m.peak for m in new]),
        _range([m.peak for m in forked]),
        f"{difference / MIB:+.2f} MiB ({share:+.2%})",
        _range([m.baseline for m in new]),
        _range([m.baseline for m in forked]),
    ]
    return f"| {' | '.join(cells)} |"


def _range(values: list[int]) -> str:
    low, high = min(values) / MIB, max(values) / MIB
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} … {high:.2f}"


def _page(lines: list[str], repeats: int) -> str:
    versions = f"batchlab {version('batchlab')}, torch {version('torch')}, Python {platform.python_version()}"
    about = (
        f"{versions}, {platform.machine()}, Linux, one thread; {repeats} probes each way, alternating. MiB of VmData, "
        "lowest and highest. The difference is that of the medians of the peaks."
    )
    body = "\n".join(lines)
    return f"""# Memory of a probe in a forked and in a new process: results

    python benchmarks/forked_probes/run.py        # {date.today()}

{textwrap.fill(about, 120)}

| workload | peak, new | peak, forked | difference | baseline, new | baseline, forked |
|---|---|---|---|---|---|
{body}
"""


if __name__ == "__main__":
    raise SystemExit(main())
