"""What several devices that train together need on a CPU, in real processes, beside the prediction for DDP.

    python benchmarks/ddp_memory/run.py            # results.md, results.json; about 5 minutes of two cores

What was measured is kept in results.json and not measured again, so the same command continues.

Three models of benchmarks/capacity_vs_peers, each at one size: alone; as each of two processes over gloo of batchlab's
own (what `capacity --devices 2` runs); and of torch's DistributedDataParallel, with and without
`gradient_as_bucket_view`. The prediction is that of `analysis/capacity/sharded.py` from a trace of one device. What is
compared is what training together adds, so that what no trace sees cancels out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from batchlab.analysis.capacity.sharded import Sharding, sharded_phases
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.protocols import Finished
from batchlab.core.record import CapacityResult, Record, TraceResult
from batchlab.core.spec import CapacitySpec, DeviceSettings, OptimizerSettings, Spec, TraceSpec, Workload
from batchlab.engines.addresses import at_fixed_addresses
from batchlab.engines.local import LocalEngine

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
WORKLOADS = HERE.parent / "capacity_vs_peers" / "workloads"
SIZES = {"decoder": 8, "convnet": 32, "big_embedding": 4}
"""The peak is in the backward pass of the first two, and in the optimizer's step of the last."""

DEVICES, MIB = 2, 2**20
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(MIB),
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


class Added(NamedTuple):
    """Bytes that a way of training together adds to those of a run alone."""

    way: str
    predicted: int
    measured: list[int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2)
    repeats = parser.parse_args().repeats
    known: dict[str, list[str]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in SIZES:
        if name not in known:
            known[name] = measured_rows(name, repeats)
            RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    (HERE / "results.md").write_text(page([row for rows in known.values() for row in rows], repeats))
    return 0


def measured_rows(name: str, repeats: int) -> list[str]:
    predicted = {way: peak(name, way) for way in ("alone", "ddp", "views")}
    alone = statistics.median(repeated(lambda: probe(name, 1), repeats))
    own = [value - alone for value in repeated(lambda: probe(name, DEVICES), repeats)]
    plain = statistics.median(repeated(lambda: torch_ranks(name, "alone"), repeats))
    rows = [Added("batchlab --devices 2", predicted["ddp"] - predicted["alone"], own)]
    for way, title in (("ddp", "torch DDP"), ("views", "torch DDP, bucket views")):
        found = [value - plain for value in repeated(lambda way=way: torch_ranks(name, way), repeats)]  # type: ignore[misc]
        rows.append(Added(title, predicted[way] - predicted["alone"], found))
    texts = []
    for row in rows:
        low, high = min(row.measured) / MIB, max(row.measured) / MIB
        most = row.predicted - max(row.measured)
        texts.append(
            f"| {name} at {SIZES[name]} | {row.way} | {alone / MIB:.1f} | {row.predicted / MIB:.1f} | "
            f"{low:.1f} … {high:.1f} | {most / MIB:+.1f} ({most / (alone + row.predicted):+.1%}) |"
        )
        print(texts[-1], flush=True)
    return texts


def repeated(measure: Callable[[], int], repeats: int) -> list[int]:
    return [measure() for _ in range(repeats)]


def settings(name: str) -> dict[str, object]:
    return {
        "workload": Workload(task=TaskReference(kind="file", target=str(WORKLOADS / f"{name}.py"))),
        "grad_accum_steps": 1,
        "optimizer": OptimizerSettings(config=OptimizerConfig(name="task", grad_clip=1.0)),
        "device": DeviceSettings(name="cpu"),
    }


def peak(name: str, way: str) -> int:
    """The traced peak of one device, alone or as one of several."""
    spec = TraceSpec.model_validate({**settings(name), "micro_batch_sizes": (SIZES[name],)})
    result = executed(spec).result
    assert isinstance(result, TraceResult), result
    [point] = result.points
    if way == "alone":
        return point.peak.total_bytes
    sharding = Sharding("ddp", DEVICES, bucket_views=way == "views")
    return max(phase.total_bytes for phase in sharded_phases(point, result.units, sharding))


def probe(name: str, devices: int) -> int:
    """The largest peak of the processes of a probe."""
    size = SIZES[name]
    fields = {"micro_batch_size": size, "evaluation_batch_size": size, "data_parallel_size": devices}
    result = executed(CapacitySpec.model_validate({**settings(name), **fields, "new_process": True})).result
    assert isinstance(result, CapacityResult), result
    assert result.peak_bytes is not None
    return result.peak_bytes


def executed(spec: Spec) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(Path(folder), 1)
        try:
            engine.submit(spec, exclusive=True)
            while True:
                for event in engine.wait(1.0):
                    if isinstance(event, Finished):
                        return event.record
        finally:
            engine.close()


def torch_ranks(name: str, way: str) -> int:
    """The largest peak of the processes of rank.py."""
    devices = 1 if way == "alone" else DEVICES
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                at_fixed_addresses(
                    [
                        *(sys.executable, str(HERE / "rank.py"), str(rank), str(devices), f"{folder}/rendezvous"),
                        *(str(WORKLOADS / f"{name}.py"), str(SIZES[name]), way),
                    ]
                ),
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **ENVIRONMENT},
            )
            for rank in range(devices)
        ]
        return max(int(process.communicate(timeout=120)[0].splitlines()[-1]) for process in ranks)


def page(rows: list[str], repeats: int) -> str:
    about = (
        f"torch {version('torch')}, Python {platform.python_version()}, {platform.machine()}, Linux, one thread per "
        f"process, {DEVICES} processes over gloo, {repeats} runs each way. MiB of VmData above a warmed-up process, of "
        "the process that needed most. The last column is the prediction less the largest measured value, and its "
        "share of all that one process needs: where it is positive, the prediction is safe."
    )
    body = "\n".join(rows)
    return f"""# Memory of data-parallel training, measured and predicted

    python benchmarks/ddp_memory/run.py

{textwrap.fill(about, 120)}

| model | way | alone | predicted to be added | measured to be added | prediction − largest |
|---|---|---|---|---|---|
{body}
"""


if __name__ == "__main__":
    raise SystemExit(main())
