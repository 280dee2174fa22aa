"""How well does `batchlab calibrate` predict the step of two real processes that share every batch over gloo?

    python benchmarks/calibration/run.py FOLDER [--repeats 3]        # an idle machine with two cores, 5 minutes

Two models of the recipe quickstart, one thread for each process. A repeat calibrates a batch, and then times whole
steps of the same two processes at the same shares with communication. The ratio is predicted ÷ measured; the goal is
0.9 to 1.1. `others` is the most of the processor that other programs used in any repeat. FOLDER holds the studies; what
is there is measured again.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

from batchlab.analysis.calibration import Calibration
from batchlab.cli.app import run
from batchlab.core.batch import BatchLayout
from batchlab.core.format import format_percent
from batchlab.core.host import host_environment
from batchlab.core.record import ThroughputResult
from batchlab.core.spec import AllReduceSpec, ThroughputSpec, WorkersSpec
from batchlab.storage.store import Store
from batchlab.study.calibration import run_calibration
from batchlab.study.open_study import EngineFactory, engine_factory, reopen_study
from batchlab.study.progress import SilentView
from batchlab.study.session import Session, run_alone

MODELS: dict[str, tuple[str, ...]] = {
    "small": (),
    "large": ("--set", "model.d_model=256", "--set", "model.layers=4"),
}
CASES = (("small", 8), ("small", 64), ("large", 8), ("large", 32))
DEVICES = 2


@dataclass(frozen=True)
class Repeat:
    found: Calibration
    measured_seconds: float
    other_load: float

    @property
    def ratio(self) -> float:
        return self.found.step.seconds / self.measured_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    print("| parameters | batch | shares | predicted ms | measured ms | ratio | speed-up | bound | others |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model, batch in CASES:
        folder = asked.folder / model
        sizes = ",".join(str(size) for name, size in CASES if name == model)
        prepared = ["throughput", "quickstart", "--out", str(folder), "--batch-sizes", sizes]
        if not Store.exists(folder):
            assert run([*prepared, "--set", "device.threads=1", *MODELS[model], "--json"]) == 0
        make_engine = engine_factory(Store.open(folder).experiment)
        repeats = [repeated(folder, make_engine, batch) for _ in range(asked.repeats)]
        print(row(Store.open(folder), batch, repeats), flush=True)
    here = host_environment("torch", threads=1, device="cpu", device_memory_bytes=None)
    print(
        f"\nbatchlab {here.batchlab}, Python {here.python}, {here.processor}, {here.cores} cores, n = {asked.repeats}."
    )


def repeated(folder: Path, make_engine: EngineFactory, batch: int) -> Repeat:
    """One calibration, and the step at its shares. What was measured before is forgotten."""
    store = Store.open(folder)
    for spec, record in store.records():
        timed = isinstance(spec, ThroughputSpec) and spec.layout.data_parallel_size == DEVICES
        if timed or isinstance(spec, AllReduceSpec | WorkersSpec):
            store.forget(record.run_id)
    found = run_calibration(folder, make_engine, SilentView(), devices=DEVICES, batch_size=batch)
    together = run_together(folder, make_engine, found.layout)
    loads = [found.other_load or 0.0, together.other_load or 0.0]
    return Repeat(found, together.step_seconds, max(loads))


def run_together(folder: Path, make_engine: EngineFactory, layout: BatchLayout) -> ThroughputResult:
    """Whole steps of processes that communicate."""
    study = reopen_study(folder)
    session = Session(study, make_engine, SilentView())
    optimizer = session.optimizer(layout.global_batch_size)
    spec = ThroughputSpec(workload=study.workload, layout=layout, optimizer=optimizer, device=session.device)
    [record] = run_alone(session, [spec])
    assert isinstance(record.result, ThroughputResult), record.reason
    return record.result


def row(store: Store, batch: int, repeats: list[Repeat]) -> str:
    """Medians, and in brackets the range over repeats."""
    info = store.decisions().task_info
    assert info is not None
    shares = {tuple(map(each.found.layout.share, range(DEVICES))) for each in repeats}
    cells = (
        f"{info.parameter_count or 0:,}",
        str(batch),
        " or ".join("+".join(map(str, each)) for each in sorted(shares)),
        spread([1000 * each.found.step.seconds for each in repeats]),
        spread([1000 * each.measured_seconds for each in repeats]),
        spread([each.ratio for each in repeats]),
        spread([each.found.speedup for each in repeats]),
        " or ".join(sorted({each.found.step.bound.value for each in repeats})),
        format_percent(max(each.other_load for each in repeats)),
    )
    return f"| {' | '.join(cells)} |"


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


if __name__ == "__main__":
    main()
