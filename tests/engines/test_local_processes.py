"""Workers that are started before they are wanted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchlab.core.spec import CapacitySpec, TraceSpec
from batchlab.core.worker import WorkerCommand
from batchlab.engines.command import HERE, IMPORT_ALL, wanted_later, worker_command
from batchlab.engines.early import Ahead, Early
from batchlab.engines.local_processes import LocalProcesses

PROGRAM = (
    "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); print('begun', flush=True); sys.stdin.read()"
)


@pytest.fixture
def early() -> Iterator[Early]:
    held = Early()
    yield held
    held.close()


@pytest.fixture
def processes(early: Early) -> Iterator[LocalProcesses]:
    held = LocalProcesses(early)
    yield held
    held.close()


def begun(log: Path, count: int = 1) -> list[int]:
    """The processes that have begun, once there are so many."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        pids = [int(line) for line in log.read_text().splitlines()] if log.exists() else []
        if len(pids) >= count:
            return pids
        time.sleep(0.01)
    raise AssertionError(f"{count} processes did not begin")


def test_a_worker_started_ahead_is_given_to_the_first_equal_command(
    early: Early, processes: LocalProcesses, tmp_path: Path
) -> None:
    command = WorkerCommand((sys.executable, "-c", PROGRAM, str(tmp_path / "log")))
    early.ahead.start(command)
    early.ahead.start(command)  # one at a time
    [pid] = begun(tmp_path / "log")
    other = processes.start(WorkerCommand((sys.executable, "-c", PROGRAM, str(tmp_path / "other"))))
    first = processes.start(command)
    assert begun(tmp_path / "log") == [pid]
    output = b""
    while not output:
        processes.wait(5.0)  # what it wrote before it was wanted is heard
        output, _ = first.read()
    assert output == b"begun\n"
    second = processes.start(command)
    assert len(begun(tmp_path / "log", 2)) == 2
    for process in (first, second, other):
        process.release()


def test_a_worker_that_nobody_wanted_is_ended(tmp_path: Path) -> None:
    ahead = Ahead()
    for number in (1, 2):  # a command that another one has replaced, and one at the end
        ahead.start(WorkerCommand((sys.executable, "-c", PROGRAM, str(tmp_path / "log"), str(number))))
        pids = begun(tmp_path / "log", number)
    ahead.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_worker_that_died_before_it_was_wanted_is_replaced(
    early: Early, processes: LocalProcesses, tmp_path: Path
) -> None:
    command = WorkerCommand((sys.executable, "-c", PROGRAM, str(tmp_path / "log")))
    early.ahead.start(command)
    [pid] = begun(tmp_path / "log")
    os.kill(pid, 9)
    time.sleep(0.1)
    process = processes.start(command)
    assert len(begun(tmp_path / "log", 2)) == 2
    process.release()


def test_the_command_that_will_verify_is_known_when_a_step_is_traced(tmp_path: Path) -> None:
    workload = {"task": {"kind": "file", "target": "t.py"}}
    device = {"name": "cpu", "threads": 3}
    trace = TraceSpec.model_validate({"workload": workload, "micro_batch_sizes": [2], "device": device})
    probe = CapacitySpec.model_validate(
        {"workload": workload, "micro_batch_size": 9, "new_process": True, "device": {**device, "memory_limit": 10**9}}
    )
    later = wanted_later(trace)
    assert later is not None
    assert worker_command(HERE, tmp_path, later, None) == worker_command(HERE, tmp_path, probe, None)
    assert IMPORT_ALL in worker_command(HERE, tmp_path, probe, None).program
    on_card = trace.model_copy(update={"device": trace.device.model_copy(update={"name": "cuda:0"})})
    assert wanted_later(on_card) is None
    assert wanted_later(probe) is None
