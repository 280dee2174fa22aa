"""Processes that begin before a study knows its task are those that it will want."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.settings import merge
from batchlab.core.spec import CapacitySpec, DeviceSettings, InspectSpec
from batchlab.core.worker import WorkerCommand
from batchlab.engines.command import HERE, worker_command
from batchlab.engines.early import Ahead
from batchlab.engines.forked import ForkServers
from batchlab.engines.inline import InlineEngine
from batchlab.engines.resources import usable_cores
from batchlab.runs.workload import workload_of
from batchlab.study import engines
from batchlab.study.engines import engine_factory, inspecting_device
from batchlab.study.task_source import resolve_task


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[WorkerCommand]]:
    """The commands of processes that would have been started."""
    commands: dict[str, list[WorkerCommand]] = {"server": [], "ahead": []}
    monkeypatch.setattr(ForkServers, "start", lambda self, command: commands["server"].append(command))
    monkeypatch.setattr(Ahead, "start", lambda self, command: commands["ahead"].append(command))
    return commands


def asked(**settings: Any) -> Experiment:
    return build_experiment(merge(resolve_task("quickstart"), settings))


@pytest.mark.parametrize("threads", [None, 3])
def test_what_begins_early_is_what_the_study_wants(
    started: dict[str, list[WorkerCommand]], tmp_path: Path, threads: int | None
) -> None:
    experiment = asked(device={"name": "cpu", "threads": threads})
    make_engine = engine_factory(experiment, begins=tmp_path / "s")
    inspect = InspectSpec(workload=workload_of(experiment), device=inspecting_device(experiment, usable_cores()))
    [server] = started["server"]
    later = worker_command(HERE, tmp_path / "scratch", inspect, None)
    assert (server.fork_server, server.environment) == (later.fork_server, later.environment)
    assert started["ahead"] == [], "the server is to be ready first"
    for _ in range(2):
        make_engine(tmp_path, 1).close()
    device = DeviceSettings(name="cpu", threads=threads or usable_cores(), memory_limit=10**9)
    probe = CapacitySpec(workload=workload_of(experiment), micro_batch_size=9, device=device, new_process=True)
    assert started["ahead"] == [worker_command(HERE, tmp_path / "s", probe, None)]


def test_a_study_that_goes_on_and_one_on_a_card_begin_nothing_for_it(
    started: dict[str, list[WorkerCommand]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_factory(asked())(tmp_path, 1).close()
    assert started == {"server": [], "ahead": []}
    monkeypatch.setattr(engines, "visible_cards", lambda: ("0",))
    engine_factory(asked(), begins=tmp_path / "s")(tmp_path, 1).close()
    assert len(started["server"]) == 1
    assert started["ahead"] == []
    assert isinstance(engine_factory(asked(device={"name": "simulated"}))(tmp_path, 1), InlineEngine)
