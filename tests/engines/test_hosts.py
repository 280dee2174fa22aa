"""Places as people write them, and the hosts behind them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from batchlab.core.errors import InputError
from batchlab.core.worker import WorkerCommand
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
    env, variable, python, *_ = shlex.split(typed)  # as the shell over there does
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


def test_variables_cross_a_launcher_that_passes_none_on() -> None:
    command = WorkerCommand(("python", "-m", "x"), {"A": "1"}, ("srun",))
    assert command.arguments == ("srun", "env", "A=1", "python", "-m", "x")
    assert WorkerCommand(("python",), {"A": "1"}).arguments == ("python",)
    assert Host("x", command, 1, 1).command.launched
