"""Places as people write them, and the hosts behind them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import TaskReference
from batchlab.core.spec import InspectSpec, Workload
from batchlab.core.worker import WorkerCommand
from batchlab.engines.command import worker_command
from batchlab.engines.hosts import Host, Place, launched, measuring_cores, read_hosts


def written(folder: Path, text: str) -> Path:
    path = folder / "hosts.toml"
    path.write_text(text)
    return path


def test_a_file_with_every_kind_of_place(tmp_path: Path) -> None:
    here, there, allocated = read_hosts(
        written(
            tmp_path,
            """
            [[host]]
            workers = 2
            [[host]]
            ssh = "me@gpu1"
            python = "/opt/batchlab/bin/python"
            environment = { HF_HOME = "/data/hf cache" }
            [[host]]
            name = "the cluster"
            launch = "srun -N1 -n1 --comment 'two words'"
            workers = 4
            """,
        )
    )
    assert (here.title, there.title, allocated.title) == ("this machine", "me@gpu1", "the cluster")
    assert here.prefix == ()
    assert allocated.prefix == ("srun", "-N1", "-n1", "--comment", "two words")
    arguments = there.command("batchlab.engines.worker").arguments
    assert arguments[:2] == ("ssh", "-o")
    *_, target, typed = arguments
    assert target == "me@gpu1"
    shell, _, script, _, env, variable, python, *_ = shlex.split(typed)  # as the shell over there does
    assert (shell, script) == ("sh", '"$@"; exit $?')
    assert (env, variable, python) == ("env", "HF_HOME=/data/hf cache", "/opt/batchlab/bin/python")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[host]]\nssh = 'a'\nlaunch = 'srun'", "by ssh or by launch"),
        ("[[host]]\nssh = '-oProxyCommand=touch x'", "not an option"),
        ("[[host]]\nworkers = 0", "workers is 0"),
        ("[[host]]\nsh = 'gpu1'", "Did you mean"),
        ("host = []", "host"),
        ("[[host]]\nssh = 'a'\n[[host]]\nssh = 'a'", "two hosts called 'a'"),
        ("[[host]", "is no TOML file"),
        ("", "host is missing"),
    ],
)
def test_files_that_say_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_hosts(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_hosts(tmp_path / "hosts.toml")


@pytest.mark.parametrize("text", ["", "srun 'unfinished"])
def test_launchers_that_are_no_command(text: str) -> None:
    with pytest.raises(InputError, match="is no command"):
        launched(text, 2)


def test_cores_are_counted_per_allocation_and_per_machine() -> None:
    (place,) = launched("srun -N1 -n1 -c4", 3)
    allocated = place.host(4, ())
    assert (allocated.workers, allocated.cores, allocated.threads, measuring_cores([allocated])) == (3, 12, 4, 4)
    machine = Place(ssh="gpu1").host(16, ("0", "1"))
    assert (machine.workers, machine.threads, measuring_cores([machine])) == (2, 8, 16)
    assert Place(ssh="gpu1").host(16, ()).workers == 16
    assert machine.workers_at(8) == 2
    assert machine.workers_at(16) == 1


def test_devices_that_share_a_run_are_counted_per_machine_and_per_allocation() -> None:
    machine = Place(ssh="gpu1").host(16, ("0", "1", "2", "3"), devices=2)
    assert (machine.workers, machine.threads, machine.places(2, "cuda")) == (2, 8, 2)
    (place,) = launched("srun --gpus=2", 3)
    allocated = place.host(8, ("0", "1"), devices=2)
    assert (allocated.workers, allocated.places(2, "cuda")) == (3, 3)
    assert [allocated.holds(devices, "cuda") for devices in (1, 2, 3)] == [True, True, False]
    assert allocated.holds(3, "cpu"), "any number of processes can share a CPU"


def test_what_a_shell_over_there_starts_ends_as_its_program_does() -> None:
    """`ssh` itself would report every signal as 255."""
    place = WorkerCommand((sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"), {}, ("ssh",), True)
    assert subprocess.run(["sh", "-c", place.arguments[1]], check=False, stderr=subprocess.DEVNULL).returncode == 139


def test_a_python_elsewhere_needs_no_file_of_this_one() -> None:
    spec = InspectSpec(workload=Workload(task=TaskReference(kind="file", target="mine.py")))
    base = Place(ssh="gpu1", python="/there/bin/python").command("batchlab.engines.worker")
    typed = worker_command(base, Path("/shared/study"), spec, None).arguments[-1]
    assert sys.executable not in typed
    assert "site-packages" not in typed
    assert "addresses.py" not in typed


def test_variables_cross_a_launcher_that_passes_none_on() -> None:
    command = WorkerCommand(("python", "-m", "x"), {"A": "1"}, ("srun",))
    assert command.arguments == ("srun", "env", "A=1", "python", "-m", "x")
    assert WorkerCommand(("python",), {"A": "1"}).arguments == ("python",)
    assert Host("x", command, 1, 1).command.launched
