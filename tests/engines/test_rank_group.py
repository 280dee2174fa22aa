"""The ranks of one run as one worker: the same numbers as on one device, and every way the group can end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Event, Finished
from batchlab.core.record import CapacityResult, Outcome, Record, TrainResult
from batchlab.core.spec import CapacitySpec, Spec, ThroughputSpec, TrainSpec, Workload
from batchlab.engines.command import worker_command
from batchlab.engines.hosts import Place, this_machine
from batchlab.engines.process_engine import ProcessEngine
from batchlab.engines.rank_group import rank_environment
from batchlab.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

TASK = """
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import batchlab

random = np.random.default_rng(0)
data = [(random.normal(size=(n, 6)), random.integers(0, 3, n)) for n in (256, 64)]


def model():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def loss(model, x, y):
    if len(x) == FAILS_AT and os.environ.get("RANK") == "1":
        FAIL
    time.sleep(SLEEP)
    return F.cross_entropy(model(x), y)


task = batchlab.task(model=model, loss=loss, train=data[0], valid=data[1])
"""


@pytest.fixture
def task(tmp_path: Path) -> Callable[..., Workload]:
    def write(sleep: float = 0.0, fails_at: int = -1, fail: str = "pass") -> Workload:
        file = tmp_path / "mine.py"
        text = TASK.replace("SLEEP", str(sleep)).replace("FAILS_AT", str(fails_at)).replace("FAIL", fail)
        file.write_text(text)
        return Workload(task=TaskReference(kind="file", target=str(file)), unit="samples")

    return write


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ProcessEngine]:
    engine = ProcessEngine(tmp_path, [this_machine(1, cores=8)])
    yield engine
    engine.close()


def train_spec(workload: Workload, devices: int, **settings: Any) -> TrainSpec:
    layout = BatchLayout(global_batch_size=7, micro_batch_size=2, data_parallel_size=devices)
    values: dict[str, Any] = {"token_budget": 350, "evaluation_interval": 175, "evaluation_samples": 64, **settings}
    return TrainSpec(workload=workload, layout=layout, learning_rate=1e-2, evaluation_batch_size=8, **values)


def record_of(engine: ProcessEngine, spec: Spec, seconds: float = 240.0) -> Record:
    engine.submit(spec)
    return finished(engine, seconds)


def finished(engine: ProcessEngine, seconds: float = 240.0) -> Record:
    events: list[Event] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        events += engine.wait(1.0)
        for event in events:
            if isinstance(event, Finished):
                return event.record
    raise AssertionError(f"no end after {seconds:g} s; {events[-3:]}")


def ranks() -> dict[str, psutil.Process]:
    """The ranks that run below this process, by number."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        environment = process.environ() if process.is_running() else {}
        if "RANK" in environment:
            found[environment["RANK"]] = process
    return found


def wait_until(happened: Callable[[], Any], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_ranks_train_to_the_same_losses_as_one(engine: ProcessEngine, task: Callable[..., Workload]) -> None:
    one, two = (record_of(engine, train_spec(task(), devices)).result for devices in (1, 2))
    assert isinstance(one, TrainResult)
    assert isinstance(two, TrainResult)
    assert two.val_loss == pytest.approx(one.val_loss, rel=1e-9)
    assert two.val_error == pytest.approx(one.val_error, rel=1e-9)
    assert two.final_grad_norm == pytest.approx(one.final_grad_norm, rel=1e-9)


def test_two_ranks_are_measured_together(engine: ProcessEngine, task: Callable[..., Workload]) -> None:
    workload = task()
    layout = BatchLayout(global_batch_size=8, micro_batch_size=4, data_parallel_size=2)
    assert record_of(engine, ThroughputSpec(workload=workload, layout=layout, repeats=2)).outcome is Outcome.COMPLETED
    probed = record_of(engine, CapacitySpec(workload=workload, micro_batch_size=4, data_parallel_size=2)).result
    assert isinstance(probed, CapacityResult)
    assert probed.fits


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_lost_rank_ends_the_group_which_goes_on_from_its_checkpoint(
    engine: ProcessEngine, task: Callable[..., Workload], tmp_path: Path, how: signal.Signals, rank: str
) -> None:
    spec = train_spec(task(sleep=0.02), 2, token_budget=1400, checkpoint_seconds=0.0)
    engine.submit(spec)
    wait_until(lambda: list(tmp_path.glob("runs/*/checkpoint/state")))
    before = ranks()
    before[rank].send_signal(how)
    wait_until(lambda: not any(process.is_running() for process in before.values()))
    result = finished(engine).result
    assert isinstance(result, TrainResult)
    assert result.resumed == 1
    undisturbed = record_of(engine, train_spec(task(), 1, token_budget=1400)).result
    assert isinstance(undisturbed, TrainResult)
    assert result.val_loss == pytest.approx(undisturbed.val_loss, rel=1e-9)


def test_a_group_behind_a_launcher_saves_when_it_is_stopped_and_goes_on(
    task: Callable[..., Workload], tmp_path: Path
) -> None:
    """One launch line starts all ranks, which meet on the host where that puts them. No signal reaches them."""
    place = Place(name="elsewhere", launch="env")
    spec = train_spec(task(sleep=0.02), 2, token_budget=1400)
    with closing(ProcessEngine(tmp_path, [place.host(2, (), devices=2)])) as engine:
        engine.submit(spec)
        wait_until(lambda: engine.wait(1.0))
        assert sorted(ranks()) == ["0", "1"]
    assert not ranks()
    with closing(ProcessEngine(tmp_path, [place.host(2, (), devices=2)])) as engine:
        result = record_of(engine, spec).result
        undisturbed = record_of(engine, train_spec(task(), 1, token_budget=1400)).result
    assert isinstance(result, TrainResult)
    assert isinstance(undisturbed, TrainResult)
    assert result.resumed == 1
    assert result.val_loss == pytest.approx(undisturbed.val_loss, rel=1e-9)


def test_a_group_behind_a_launcher_ends_with_its_driver(task: Callable[..., Workload], tmp_path: Path) -> None:
    """The end of its input tells it, as on a machine that the driver is not on."""
    command = Place(launch="env").host(2, (), devices=2).command
    spec = train_spec(task(sleep=0.02), 2, token_budget=14000)
    started = worker_command(command, tmp_path, spec, None)
    group = subprocess.Popen(started.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert group.stdin is not None
    assert group.stdout is not None
    group.stdin.write(json.dumps({"spec": spec.model_dump(mode="json")}).encode() + b"\n")
    group.stdin.flush()
    while b"progress" not in group.stdout.readline():
        pass
    own = ranks().values()
    group.stdin.close()
    group.wait(60.0)
    wait_until(lambda: not any(process.is_running() for process in own), 30.0)
    assert not RunFolder(tmp_path, spec).locked_by_another()


def test_an_error_of_another_rank_is_the_outcome(engine: ProcessEngine, task: Callable[..., Workload]) -> None:
    record = record_of(engine, train_spec(task(fails_at=1, fail="raise ValueError('in my share')"), 2))
    assert record.outcome is Outcome.FAILED
    assert "Rank 1: ValueError: in my share" in record.reason


def test_memory_that_runs_out_on_another_rank_does_not_fit(
    engine: ProcessEngine, task: Callable[..., Workload]
) -> None:
    workload = task(fails_at=4, fail="raise torch.OutOfMemoryError('CUDA out of memory')")
    record = record_of(engine, CapacitySpec(workload=workload, micro_batch_size=4, data_parallel_size=2))
    assert record.outcome is Outcome.OUT_OF_MEMORY
    assert isinstance(record.result, CapacityResult)
    assert not record.result.fits


def test_a_rank_sees_one_card_and_stays_on_this_machine() -> None:
    environment = rank_environment(1, 2, 4000, {"CUDA_VISIBLE_DEVICES": "5,7"})
    assert environment["CUDA_VISIBLE_DEVICES"] == "7"
    assert environment["MASTER_ADDR"] == "127.0.0.1"
    assert environment["GLOO_SOCKET_IFNAME"].startswith("lo")
