"""Runs and a study that the tests of clusters carry out, and a driver of them that is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter
from tests.cluster.until import until

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Finished
from batchlab.core.record import Outcome, Record, TrainResult
from batchlab.core.spec import DeviceSettings, TrainSpec, Workload, run_id
from batchlab.core.worker import WorkerCommand
from batchlab.engines.process_engine import ProcessEngine
from batchlab.storage.run_folder import RunFolder

TOY = str(Path(__file__).parents[1] / "engines" / "toy_worker.py")

TASK = """
import os
import torch
import batchlab
with open("places", "a") as places:
    print(os.environ.get("SSH_CONNECTION", "here"), file=places)
x = torch.randn(1000, 9, generator=torch.Generator().manual_seed(int(os.environ.get("DATA_SEED", 0))))
y = x.square().sum(dim=1).gt(9).long()
task = batchlab.task(
    model=lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2)),
    loss=lambda model, x, y: torch.nn.functional.cross_entropy(model(x), y),
    train=(x[:900, :8], y[:900]),
    valid=(x[900:, :8], y[900:]),
)
"""

STUDY = (
    *(sys.executable, "-m", "batchlab", "study", "mine.py", "--search", "grid", "--seeds", "1", "--confirm", "0"),
    *("--batch-sizes", "8,16", "--learning-rates", "1e-3,1e-2", "--token-budget", "4096"),
    *("--set", "device.threads=1", "--set", "sweep.max_extensions=0"),
)


def toy(seed: int, sleep: float = 0.01) -> TrainSpec:
    return TrainSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="toy"), sequence_length=8, model={"sleep": sleep}),
        layout=BatchLayout(global_batch_size=4, micro_batch_size=4, sequence_length=8),
        learning_rate=1e-3,
        seed=seed,
        token_budget=4 * 8 * 40,
        evaluation_interval=4 * 8,
        device=DeviceSettings(threads=1),
    )


def carry_out(
    engine: ProcessEngine, specs: list[TrainSpec], meanwhile: Callable[[], None] = lambda: None
) -> list[Record]:
    """Submit the specs, do something when all of them are running, and return their records."""
    for spec in specs:
        engine.submit(spec)
    running: set[str] = set()
    found: dict[str, Record] = {}
    while len(found) < len(specs):
        for event in engine.wait(1.0):
            if isinstance(event, Finished):
                found[event.record.run_id] = event.record
            running.add(event.run_id if not isinstance(event, Finished) else event.record.run_id)
        if len(running) == len(specs):
            meanwhile()
            meanwhile = lambda: None  # noqa: E731
    return [found[run_id(spec)] for spec in specs]


def losses(records: list[Record]) -> list[float | None]:
    assert {record.outcome for record in records} == {Outcome.COMPLETED}
    return [record.result.val_loss for record in records if isinstance(record.result, TrainResult)]


_DRIVER = """
import sys
from pathlib import Path
from pydantic import TypeAdapter
from batchlab.core.spec import SPEC
from batchlab.core.worker import WorkerCommand
from batchlab.engines.hosts import Host
from batchlab.engines.process_engine import ProcessEngine
study, command, *specs = sys.argv[1:]
engine = ProcessEngine(Path(study), [Host("cluster", TypeAdapter(WorkerCommand).validate_json(command), 2, 2)])
for spec in specs:
    engine.submit(SPEC.validate_json(spec))
while True:
    for event in engine.wait(600.0):
        print(type(event).__name__, flush=True)
"""


def killed_driver(command: WorkerCommand, study: Path, specs: list[TrainSpec]) -> None:
    """Start a process that carries these runs out by an engine of its own, and kill it when all have a checkpoint.
    Returns when no worker has a run any more."""
    given = (
        str(study),
        TypeAdapter(WorkerCommand).dump_json(command).decode(),
        *(spec.model_dump_json() for spec in specs),
    )
    driver = subprocess.Popen([sys.executable, "-c", _DRIVER, *given], stdout=subprocess.PIPE)
    folders = [RunFolder(study, spec) for spec in specs]
    until(lambda: all((one.path / "checkpoint" / "state").exists() for one in folders), "no checkpoints", 120.0)
    driver.kill()
    driver.communicate()
    until(lambda: not any(one.locked_by_another() for one in folders), "a worker outlives its driver", 120.0)
