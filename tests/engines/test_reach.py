"""Places that answer, that do not, and that answer something else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from batchlab.core.errors import InputError
from batchlab.engines.hosts import Place
from batchlab.engines.reach import reach
from batchlab.engines.resources import usable_cores

ENV = Place(name="elsewhere", launch="env")
"""A launcher that starts its program here."""


def relay(code: str) -> Place:
    """A launcher that does something with the program's arguments, `sys.argv[1:]`."""
    return Place(name="elsewhere", launch=(sys.executable, "-c", f"import os, sys\n{code}"))


def test_a_place_that_sees_folder_and_lock(tmp_path: Path) -> None:
    here, elsewhere = reach([Place(), ENV], tmp_path / "studies" / "mine")
    assert (here.name, here.command.launched) == ("this machine", False)
    assert (elsewhere.name, elsewhere.command.launched, elsewhere.cores) == ("elsewhere", True, usable_cores())
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_launcher_that_waits_in_vain_can_take_its_request_back(tmp_path: Path) -> None:
    queued = tmp_path / "queued"
    code = f"""
import signal, time
open({str(queued)!r}, "w").close()
signal.signal(signal.SIGTERM, lambda *_: (os.unlink({str(queued)!r}), sys.exit(1)))
time.sleep(60)"""
    with pytest.raises(InputError, match="did not answer within 2 seconds"):
        reach([Place(), relay(code)], tmp_path / "mine", seconds=2.0)
    assert not queued.exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import time; time.sleep(60)", "did not answer within 1 second"),
        ("sys.exit('no such node')", "exit code 1.: no such node"),
        ("print('Welcome to the cluster')", "exit code 0.: it printed nothing"),
        ("os.execvp('env', ['env', *[a if 'batchlab-' not in a else '/nowhere' for a in sys.argv[1:]]])", "not see"),
        ("print('batchlab-host {}')", "has another version of batchlab"),
    ],
)
def test_places_that_cannot_take_part(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        reach([Place(), relay(code)], tmp_path / "mine", seconds=1.0 if "sleep" in code else 25.0)
    assert list(tmp_path.iterdir()) == []


CHANGED = """
import subprocess
out = subprocess.run(["env", *sys.argv[1:]], capture_output=True, text=True).stdout
mark, _, facts = out.partition(" ")
import json
facts = json.loads(facts)
{change}
print(mark, json.dumps(facts))
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("facts['code'] = 'x'", "another version of batchlab than"),
        ("facts['versions']['torch'] = '1.0'", "elsewhere has torch 1.0, this machine has"),
        ("facts['sees_lock'] = False", "does not see locks"),
    ],
)
def test_places_that_would_compute_something_else(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        reach([Place(), relay(CHANGED.format(change=change))], tmp_path / "mine")


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("/no/such/python", "exit code 127.*It was started as /no/such/python"),
        ("python3-without", "No module named.*`python`"),
    ],
)
def test_a_python_that_does_not_have_it(tmp_path: Path, python: str, said: str) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    place = Place(name="elsewhere", launch="env", python=python if python.startswith("/") else str(bare))
    with pytest.raises(InputError, match=said):
        reach([place], tmp_path / "mine")


def test_a_launcher_that_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be started: No such file or directory .*no-such-launcher"):
        reach([Place(launch="no-such-launcher -n1")], tmp_path / "mine")
