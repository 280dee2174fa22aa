"""Studies on a Slurm of two nodes: workers started by srun, and the study itself as a job array."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.cluster.slurm import Slurm, missing, until

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Finished
from batchlab.core.record import Outcome, Record, TrainResult
from batchlab.core.spec import DeviceSettings, TrainSpec, Workload, run_id
from batchlab.core.worker import WorkerCommand
from batchlab.engines.hosts import Host
from batchlab.engines.local import LocalEngine
from batchlab.engines.process_engine import ProcessEngine
from batchlab.storage.run_folder import RunFolder

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(missing()), reason=missing() or "it can be started")]

TOY = str(Path(__file__).parents[1] / "engines" / "toy_worker.py")
SRUN = ("srun", "-Q", "-N1", "-n1", "-c1")

TASK = """
import torch
import batchlab
x = torch.randn(1000, 9, generator=torch.Generator().manual_seed(0))
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


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster; what this process starts finds it."""
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    before = dict(os.environ)
    os.environ.update(cluster.environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task, and its study on this machine."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "mine.py").write_text(TASK)
    subprocess.run([*STUDY, "--out", "here"], cwd=folder, check=True, capture_output=True, timeout=240)
    return folder


def on_nodes(*nodes: str) -> list[Host]:
    """A host of one worker for each node."""
    return [
        Host(node, WorkerCommand((sys.executable, TOY, "--launched-in", os.getcwd()), prefix=(*SRUN, "-w", node)), 1, 1)
        for node in nodes
    ]


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


def nodes_of(study: Path) -> list[str]:
    lines = (study / "cache" / "starts.jsonl").read_text().splitlines()
    return [json.loads(line)["environment"]["SLURMD_NODENAME"] for line in lines]


@pytest.fixture
def expected(tmp_path: Path) -> list[float | None]:
    """What two runs end with that nothing disturbs."""
    command = WorkerCommand((sys.executable, TOY))
    with closing(LocalEngine(tmp_path / "undisturbed", 2, cores=2, command=command)) as engine:
        return losses(carry_out(engine, [toy(0, 0.4), toy(1, 0.4)]))


def test_a_node_that_loses_its_power(slurm: Slurm, tmp_path: Path, expected: list[float | None]) -> None:
    study = tmp_path / "study"
    with closing(ProcessEngine(study, on_nodes("n1", "n2"), grace_seconds=5.0)) as engine:
        try:
            records = carry_out(engine, [toy(0, 0.4), toy(1, 0.4)], lambda: slurm.kill_node("n1"))
        finally:
            slurm.start_node("n1")
    assert losses(records) == expected
    assert sorted(record.attempts for record in records) == [1, 2]
    assert sorted(nodes_of(study)) == ["n1", "n2", "n2"]
    slurm.wait_until_idle()


def test_a_node_that_is_set_down(slurm: Slurm, tmp_path: Path, expected: list[float | None]) -> None:
    def put_down() -> None:
        slurm.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")

    with closing(ProcessEngine(tmp_path / "study", on_nodes("n1", "n2"), grace_seconds=5.0)) as engine:
        try:
            records = carry_out(engine, [toy(0, 0.4), toy(1, 0.4)], put_down)
        finally:
            slurm.run(
                "scontrol", "update", "NodeName=n1", "State=RESUME", check=False
            )  # it may have returned by itself
    assert losses(records) == expected
    slurm.wait_until_idle()


DRIVER = """
import os, sys
from pathlib import Path
from batchlab.core.spec import SPEC
from batchlab.core.worker import WorkerCommand
from batchlab.engines.hosts import Host
from batchlab.engines.process_engine import ProcessEngine
toy, study, *specs = sys.argv[1:]
srun = ("srun", "-Q", "-N1", "-n1", "-c1")
command = WorkerCommand((sys.executable, toy, "--launched-in", os.getcwd()), prefix=srun)
engine = ProcessEngine(Path(study), [Host("slurm", command, 2, 2)])
for spec in specs:
    engine.submit(SPEC.validate_json(spec))
while True:
    for event in engine.wait(600.0):
        print(type(event).__name__, flush=True)
"""


def test_a_driver_that_is_killed(slurm: Slurm, tmp_path: Path, expected: list[float | None]) -> None:
    study, specs = tmp_path / "study", [toy(0, 0.4), toy(1, 0.4)]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, TOY, str(study), *(spec.model_dump_json() for spec in specs)],
        stdout=subprocess.PIPE,
    )
    assert driver.stdout is not None
    checkpoints = [RunFolder(study, spec).path / "checkpoint" / "state" for spec in specs]
    until(lambda: all(path.exists() for path in checkpoints), "no checkpoints")
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    slurm.wait_until_idle()
    assert not any(RunFolder(study, spec).locked_by_another() for spec in specs), "no worker outlives it"
    with closing(ProcessEngine(study, on_nodes("n1", "n2"), grace_seconds=5.0)) as engine:
        records = carry_out(engine, specs)
    assert losses(records) == expected
    assert all(isinstance(record.result, TrainResult) and record.result.resumed for record in records)


def test_a_study_over_srun_ends_as_on_one_machine(slurm: Slurm, project: Path) -> None:
    launch = ("--launch", " ".join(SRUN), "--workers", "2", "--out", "srun")
    subprocess.run([*STUDY, *launch], cwd=project, check=True, capture_output=True, timeout=240)
    assert (project / "srun" / "outcomes.csv").read_text() == (project / "here" / "outcomes.csv").read_text()


def test_a_job_array_shares_one_study_and_is_requeued(slurm: Slurm, project: Path) -> None:
    script = f"cd {project} && exec {' '.join(STUDY)} --out array"
    job = slurm.run("sbatch", "--parsable", "--array=0-1", "--requeue", "-n1", "-o", "/dev/null", "--wrap", script)
    first = f"{job.strip()}_0"
    until(lambda: list(project.glob("array/runs/*/record.json")), "nothing was recorded", 120.0)
    slurm.run("scontrol", "requeue", first)
    slurm.run("scontrol", "update", f"JobId={first}", "StartTime=now")
    until(lambda: not slurm.run("squeue", "-h"), "the array did not end", 200.0)
    assert (project / "array" / "outcomes.csv").read_text() == (project / "here" / "outcomes.csv").read_text()


def test_a_study_that_is_preempted_goes_on(slurm: Slurm, project: Path) -> None:
    script = f"cd {project} && exec {' '.join(STUDY)} --out preempted"
    job = slurm.run("sbatch", "--parsable", "--requeue", "-n1", "-c2", "-o", "/dev/null", "--wrap", script).strip()
    until(lambda: list(project.glob("preempted/runs/*/record.json")), "nothing was recorded", 120.0)
    urgent = ("sbatch", "--parsable", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")
    slurm.run(*urgent)
    until(lambda: "PD" in slurm.run("squeue", "-h", "-j", job, "-o", "%t"), "it was not preempted")
    until(lambda: "sleep" not in slurm.run("squeue", "-h", "-p", "urgent", "-o", "%o"), "urgent work did not end")
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    until(lambda: not slurm.run("squeue", "-h"), "it did not end", 200.0)
    assert (project / "preempted" / "outcomes.csv").read_text() == (project / "here" / "outcomes.csv").read_text()
