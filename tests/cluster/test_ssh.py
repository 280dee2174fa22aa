"""Studies on machines behind ssh: the whole way, what a lost one costs, and every machine that is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.cluster.ssh import Machines, missing
from tests.cluster.toy_runs import STUDY, TASK, TOY, carry_out, killed_driver, losses, toy
from tests.cluster.unavailable import require
from tests.cluster.until import until

import batchlab
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.errors import InputError
from batchlab.core.experiment import TaskReference
from batchlab.core.record import Outcome, TrainResult
from batchlab.core.spec import TrainSpec, Workload
from batchlab.core.worker import WorkerCommand
from batchlab.engines.hosts import Host, Place, read_hosts
from batchlab.engines.process_engine import ProcessEngine
from batchlab.engines.reach import reach
from batchlab.storage.run_folder import RunFolder

pytestmark = pytest.mark.cluster

SOURCE = Path(batchlab.__file__).parents[1]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """gpu1 and gpu2, which run; what this process starts finds them."""
    require(missing())
    machines = Machines(tmp_path_factory.mktemp("ssh"))
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{machines.path}:{before}"
    try:
        for name in ("gpu1", "gpu2"):
            machines.add(name)
            machines.start(name)
        yield machines
    finally:
        machines.stop()
        os.environ["PATH"] = before


def hosts_file(folder: Path, *hosts: str, name: str = "hosts.toml") -> Path:
    """Each host as a line of TOML, with the batchlab that these tests import."""
    path = folder / name
    path.write_text("".join(f"[[host]]\n{host}\nenvironment.PYTHONPATH = '{SOURCE}'\n" for host in hosts))
    return path


def study(folder: Path, hosts: Path, out: str) -> subprocess.CompletedProcess[str]:
    command = [*STUDY, "--hosts", str(hosts), "--out", out]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=240)


def toy_on(*names: str) -> list[Host]:
    """A host of one worker for each machine."""
    program = (sys.executable, TOY, "--launched-in", os.getcwd())
    environment = {"PYTHONPATH": os.pathsep.join((str(SOURCE), os.getcwd()))}
    return [
        Host(name, WorkerCommand(program, environment, Place(ssh=name).prefix, through_shell=True), 1, 1)
        for name in names
    ]


def test_a_study_over_two_machines_ends_as_on_one(machines: Machines, project: Path) -> None:
    hosts = hosts_file(project, "ssh = 'gpu1'\nworkers = 1", "ssh = 'gpu2'\nworkers = 1")
    ended = study(project, hosts, "ssh")
    assert ended.returncode == 0, ended.stderr
    assert (project / "ssh" / "outcomes.csv").read_text() == (project / "here" / "outcomes.csv").read_text()
    connections = [line.split() for line in (project / "places").read_text().splitlines()]
    used = {int(words[-1]) for words in connections if len(words) == 4}  # SSH_CONNECTION ends with the server's port
    assert used >= {machines.port("gpu1"), machines.port("gpu2")}


def test_two_devices_of_a_machine(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks over gloo, started through one connection, with the loss of one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TASK)
    task = TaskReference(kind="file", target=str(tmp_path / "mine.py"))
    one, two = (
        TrainSpec(
            workload=Workload(task=task, unit=Unit.SAMPLES),
            layout=BatchLayout(global_batch_size=7, micro_batch_size=4, data_parallel_size=devices),
            learning_rate=1e-2,
            token_budget=700,
            evaluation_interval=350,
            evaluation_samples=100,
        )
        for devices in (1, 2)
    )
    place = Place(ssh="gpu1", environment={"PYTHONPATH": str(SOURCE)})
    with closing(ProcessEngine(tmp_path / "study", [place.host(2, (), devices=2)], grace_seconds=5.0)) as engine:
        alone, shared = losses(carry_out(engine, [one, two]))
    assert shared == pytest.approx(alone, rel=1e-4)


def test_a_machine_whose_connections_are_killed(
    machines: Machines, tmp_path: Path, expected: list[float | None]
) -> None:
    specs = [toy(0, 0.4), toy(1, 0.4)]
    folders = [RunFolder(tmp_path / "study", spec).path / "checkpoint" / "state" for spec in specs]

    def kill() -> None:
        until(lambda: all(path.exists() for path in folders), "no checkpoints")
        machines.kill("gpu1")

    with closing(ProcessEngine(tmp_path / "study", toy_on("gpu1", "gpu2"), grace_seconds=5.0)) as engine:
        try:
            records = carry_out(engine, specs, kill)
        finally:
            machines.start("gpu1")
    assert losses(records) == expected
    assert sorted(record.attempts for record in records) == [1, 2]
    assert sorted(record.result.resumed for record in records if isinstance(record.result, TrainResult)) == [0, 1]


def test_a_crash_of_a_run_is_its_outcome_and_no_fault_of_the_machine(machines: Machines, tmp_path: Path) -> None:
    spec = toy(0)
    dying = spec.model_copy(
        update={"workload": spec.workload.model_copy(update={"model": {"die": "SIGSEGV", "die_at": 3}})}
    )
    assert isinstance(dying, TrainSpec)
    with closing(ProcessEngine(tmp_path / "study", toy_on("gpu1"), grace_seconds=5.0)) as engine:
        [record] = carry_out(engine, [dying])
    assert record.outcome is Outcome.FAILED
    assert "SIGSEGV" in record.reason


def test_a_driver_that_is_killed(machines: Machines, tmp_path: Path, expected: list[float | None]) -> None:
    study, specs = tmp_path / "study", [toy(0, 0.4), toy(1, 0.4)]
    killed_driver(toy_on("gpu1")[0].command, study, specs)
    with closing(ProcessEngine(study, toy_on("gpu1", "gpu2"), grace_seconds=5.0)) as engine:
        records = carry_out(engine, specs)
    assert losses(records) == expected
    assert all(isinstance(record.result, TrainResult) and record.result.resumed for record in records)


@pytest.mark.parametrize("how", ["nothing listens", "nothing answers", "another host key", "another user key"])
def test_a_machine_that_is_not_reached(machines: Machines, tmp_path: Path, how: str) -> None:
    (tmp_path / "mine.py").write_text(TASK)
    name = how.replace(" ", "-")
    machines.add(name, known=how != "another host key", key="other_key" if how == "another user key" else "user_key")
    if how != "nothing listens":
        machines.start(name)
    if how == "nothing answers":
        machines.freeze(name)
    hosts = hosts_file(tmp_path, "ssh = 'gpu1'", f"ssh = '{name}'")
    ended = study(tmp_path, hosts, "study")
    said = {
        "nothing listens": "Connection refused",
        "nothing answers": "timed out",
        "another host key": "Host key verification failed",
        "another user key": "Permission denied",
    }[how]
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert f"{name} is not reached" in ended.stderr
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py", "hosts.toml"}, "nothing is left behind"


def another_batchlab(folder: Path) -> Path:
    copy = folder / "batchlab"
    shutil.copytree(SOURCE / "batchlab", copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "__init__.py").open("a") as file:
        file.write("# changed\n")
    return folder


def another_torch(folder: Path) -> Path:
    (folder / "torch-1.0.dist-info").mkdir(parents=True)
    (folder / "torch-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    (folder / "batchlab").symlink_to(SOURCE / "batchlab")
    return folder


def nothing(folder: Path) -> Path:
    (folder / "batchlab").mkdir(parents=True)
    (folder / "batchlab" / "__init__.py").write_text("raise ImportError('not for this machine')\n")
    return folder


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (another_batchlab, "gpu2 has another version of batchlab than this machine"),
        (another_torch, "gpu2 has torch 1.0, gpu1 has"),
        (nothing, "could not be started on gpu2 .*not for this machine"),
    ],
)
def test_a_machine_with_other_versions(
    machines: Machines, tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    path = tmp_path / "hosts.toml"
    there = make(tmp_path / "there")
    hosts_file(tmp_path, "ssh = 'gpu1'")
    path.write_text(f"{path.read_text()}[[host]]\nssh = 'gpu2'\nenvironment.PYTHONPATH = '{there}'\n")
    with pytest.raises(InputError, match=said):
        reach(read_hosts(path), tmp_path / "study")


def test_a_machine_with_other_data(machines: Machines, project: Path) -> None:
    other = "ssh = 'gpu2'\nworkers = 1\nenvironment.DATA_SEED = '1'"
    ended = study(project, hosts_file(project, "ssh = 'gpu1'\nworkers = 1", other, name="other.toml"), "other")
    assert ended.returncode == 2
    assert "gpu2 has other data than this study" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (project / "other").exists(), "nothing is left behind"


def test_a_python_that_is_not_there(machines: Machines, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"could not be started on gpu1 \(exit code 127\).*/no/such/python"):
        reach([Place(ssh="gpu1", python="/no/such/python")], tmp_path / "study")


def test_signals_end_what_a_worker_has_started(machines: Machines, tmp_path: Path) -> None:
    """As where it runs here: its children are in its own process group."""
    spec = toy(0)
    forking = spec.model_copy(update={"workload": spec.workload.model_copy(update={"model": {"fork": 1, "sleep": 5}})})
    assert isinstance(forking, TrainSpec)
    pid = tmp_path / "study" / "cache" / "child.pid"
    engine = ProcessEngine(tmp_path / "study", toy_on("gpu1"), grace_seconds=0.0)
    with closing(engine):
        engine.submit(forking)
        until(lambda: pid.exists() and pid.read_text(), "it did not begin")
    until(lambda: not _runs(int(pid.read_text())), "its child outlives it", 20.0)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
