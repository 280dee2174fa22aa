"""Workers forked from a process that has loaded the task: what they share, and what happens where they cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.fast_clock import FastClock

from batchlab.core.record import CapacityResult, Outcome, Record
from batchlab.core.spec import CapacitySpec, TrainSpec
from batchlab.core.worker import WorkerCommand
from batchlab.engines.command import worker_command
from batchlab.engines.local import LocalEngine
from batchlab.storage.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")]

CarryOut = Callable[..., list[Record]]
Train = Callable[..., TrainSpec]
Capacity = Callable[..., CapacitySpec]
Build = Callable[..., LocalEngine]
Starts = Callable[[], list[dict[str, Any]]]


def loads(study: Path) -> list[int]:
    """The processes that loaded the task, each time they did."""
    return [json.loads(line)["pid"] for line in (study / "cache" / "loads.jsonl").read_text().splitlines()]


def wait_until(happened: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_every_probe_is_a_process_of_its_own_and_the_task_is_loaded_once(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, starts: Starts, tmp_path: Path
) -> None:
    records = carry_out(local_engine(forking=True), *[toy_capacity(micro=m) for m in (1, 2, 3)], exclusive=True)
    assert [record.process for record in records] == ["forked"] * 3
    assert len({start["pid"] for start in starts()}) == 3
    assert {start["parent"] for start in starts()} == set(loads(tmp_path))
    assert len(loads(tmp_path)) == 1


def test_a_probe_that_asks_for_a_new_process_has_one_and_the_server_stays(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, starts: Starts, tmp_path: Path
) -> None:
    asked = [toy_capacity(micro=2).model_copy(update={"new_process": kind == "new"}) for kind in ("forked", "new")]
    records = carry_out(local_engine(forking=True), *asked, toy_capacity(micro=3), exclusive=True)
    assert [record.process for record in records] == ["forked", "new", "forked"]
    assert len(loads(tmp_path)) == 1
    assert starts()[1]["parent"] == os.getpid()


def test_what_a_probe_keeps_in_a_global_is_not_there_for_the_next(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity
) -> None:
    records = carry_out(local_engine(forking=True), *[toy_capacity(micro=m) for m in (1, 2, 3)], exclusive=True)
    assert [r.result.peak_bytes for r in records if isinstance(r.result, CapacityResult)] == [1, 1, 1]


def test_out_of_memory_costs_no_process_but_its_own(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, starts: Starts
) -> None:
    engine = local_engine(forking=True)
    first, failed, last = (toy_capacity(micro=m, **how) for m, how in ((1, {}), (2, {"out_of_memory": 1}), (3, {})))
    records = carry_out(engine, first, failed, last, exclusive=True)
    assert [record.outcome.value for record in records] == ["completed", "out_of_memory", "completed"]
    assert {record.process for record in records} == {"forked"}


@pytest.mark.parametrize("how", ["load_raises", "load_crashes", "load_starts_a_thread", "load_uses_the_device"])
def test_a_task_that_cannot_be_forked_runs_in_processes_started_for_it(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, tmp_path: Path, how: str
) -> None:
    records = carry_out(
        local_engine(forking=True), *[toy_capacity(micro=m, **{how: "no"}) for m in (1, 2)], exclusive=True
    )
    assert [(record.outcome, record.process) for record in records] == [(Outcome.COMPLETED, "new")] * 2
    assert len(loads(tmp_path)) == 1, "a server that could not fork is not started again"


def test_training_runs_are_not_forked(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, tmp_path: Path
) -> None:
    first, second = carry_out(local_engine(workers=1, forking=True), toy_train(), toy_train(seed=1))
    assert (first.process, second.process) == ("new", "used")
    assert not (tmp_path / "cache" / "loads.jsonl").exists()


def test_a_probe_killed_in_its_midst_is_tried_again(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, tmp_path: Path
) -> None:
    engine = local_engine(forking=True, clock=FastClock())
    [record] = carry_out(engine, toy_capacity(die="SIGKILL", die_times=1), exclusive=True)
    assert (record.outcome, record.attempts, record.process) == (Outcome.COMPLETED, 2, "forked")
    assert len(loads(tmp_path)) == 1


def test_a_probe_that_crashes_has_run_out_of_memory_or_failed_as_any_other(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity
) -> None:
    crashed, left = carry_out(
        local_engine(forking=True), toy_capacity(die="SIGSEGV"), toy_capacity(micro=9, die="exit"), exclusive=True
    )
    assert crashed.outcome is Outcome.OUT_OF_MEMORY
    assert "by SIGSEGV" in crashed.reason
    assert (left.outcome, left.reason) == (
        Outcome.FAILED,
        "Its process ended with exit code 7. Last output: dying at step 0",
    )


def test_the_server_killed_in_the_midst_of_a_probe_is_done_without(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, starts: Starts, tmp_path: Path
) -> None:
    engine = local_engine(forking=True, clock=FastClock())

    def kill_the_server() -> None:
        wait_until((tmp_path / "cache" / "starts.jsonl").exists, "no probe has begun")
        os.kill(loads(tmp_path)[0], signal.SIGKILL)

    threading.Thread(target=kill_the_server).start()
    [record] = carry_out(engine, toy_capacity(sleep=2.0), exclusive=True)
    assert (record.outcome, record.process, record.attempts) == (Outcome.COMPLETED, "new", 2)
    assert gone(starts()[0]["pid"])


def test_a_probe_that_hangs_is_ended_and_the_next_is_forked(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, starts: Starts
) -> None:
    engine = local_engine(forking=True, silence_seconds=15.0)
    hanging, good = carry_out(engine, toy_capacity(hang=True), toy_capacity(micro=2), exclusive=True)
    assert (hanging.outcome, good.outcome) == (Outcome.FAILED, Outcome.COMPLETED)
    assert "15 seconds" in hanging.reason
    assert good.process == "forked"
    assert gone(starts()[0]["pid"])


def test_a_task_that_hangs_while_it_is_loaded_is_loaded_by_a_process_of_its_own(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, tmp_path: Path
) -> None:
    engine = local_engine(forking=True, silence_seconds=8.0)
    [record] = carry_out(engine, toy_capacity(load_hangs=True), exclusive=True)
    assert (record.outcome, record.process) == (Outcome.COMPLETED, "new")
    assert all(gone(pid) for pid in loads(tmp_path))


def test_what_a_probe_forks_ends_with_it(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, tmp_path: Path
) -> None:
    carry_out(local_engine(forking=True), toy_capacity(fork=True), exclusive=True)
    child = int((tmp_path / "cache" / "child.pid").read_text())
    wait_until(lambda: gone(child), "the probe's child is still there")


def test_closing_ends_the_server_and_a_probe_at_work(
    local_engine: Build, toy_capacity: Capacity, starts: Starts, tmp_path: Path
) -> None:
    engine = local_engine(forking=True)
    spec = toy_capacity(sleep=300)
    engine.submit(spec, exclusive=True)
    wait_until((tmp_path / "cache" / "starts.jsonl").exists, "no probe has begun")
    engine.close()
    assert gone(starts()[0]["pid"])
    assert gone(loads(tmp_path)[0])
    assert RunFolder(tmp_path, spec).record() is None


PARENT = """
import sys
from dataclasses import replace
from pathlib import Path
from batchlab.core.spec import SPEC
from batchlab.core.worker import WorkerCommand
from batchlab.engines.local import LocalEngine
toy, study, spec = sys.argv[1:]
command = WorkerCommand((sys.executable, toy), fork_server=(sys.executable, toy, "--fork-server"))
engine = LocalEngine(Path(study), 1, command=command)
engine.submit(SPEC.validate_json(spec), exclusive=True)
engine.wait(600.0)
"""


def test_server_and_probe_die_with_the_engine_s_process(toy_capacity: Capacity, starts: Starts, tmp_path: Path) -> None:
    toy = str(Path(__file__).with_name("toy_worker.py"))
    spec = toy_capacity(hang=True).model_dump_json()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, toy, str(tmp_path), spec])
    wait_until((tmp_path / "cache" / "starts.jsonl").exists, "no probe has begun")
    parent.kill()
    parent.wait()
    for pid in (loads(tmp_path)[0], starts()[0]["pid"]):
        wait_until(partial(gone, pid), "an orphan is left")


def test_behind_a_launcher_nothing_is_forked(toy_capacity: Capacity, toy_train: Train, tmp_path: Path) -> None:
    command = WorkerCommand(("worker",), fork_server=("server",))
    assert worker_command(command, tmp_path, toy_capacity(), None).fork_server[-1] == "server"
    assert worker_command(command, tmp_path, toy_train(), None).fork_server == ()
    behind = WorkerCommand(("worker",), fork_server=("server",), prefix=("srun",))
    assert worker_command(behind, tmp_path, toy_capacity(), None).fork_server == ()
