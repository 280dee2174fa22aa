"""Specs for toy runs, and engines whose workers carry them out (toy_worker.py)."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Engine, Event, Finished
from batchlab.core.record import Record
from batchlab.core.spec import CapacitySpec, DeviceSettings, Spec, TrainSpec, Workload, run_id
from batchlab.core.worker import WorkerCommand
from batchlab.engines.inline import InlineEngine
from batchlab.engines.local import LocalEngine

TOY = Path(__file__).with_name("toy_worker.py")
COMMAND = WorkerCommand((sys.executable, str(TOY)))
FORKING = replace(COMMAND, fork_server=(sys.executable, str(TOY), "--fork-server"))


def load_beside(name: str) -> Any:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def scripted() -> Any:
    """Workers without processes (scripted.py)."""
    return load_beside("scripted")


def workload(**how: Any) -> Workload:
    return Workload(task=TaskReference(kind="recipe", target="toy"), sequence_length=8, model=how)


@pytest.fixture
def toy_train() -> Callable[..., TrainSpec]:
    """A training run of 40 steps; keyword arguments say what happens in it (toy_worker.py)."""

    def build(seed: int = 0, batch: int = 4, threads: int = 1, limit: int | None = None, **how: Any) -> TrainSpec:
        return TrainSpec(
            workload=workload(**how),
            layout=BatchLayout(global_batch_size=batch, micro_batch_size=batch, sequence_length=8),
            learning_rate=1e-3,
            seed=seed,
            token_budget=batch * 8 * 40,
            evaluation_interval=batch * 8,
            device=DeviceSettings(threads=threads, memory_limit=limit),
        )

    return build


@pytest.fixture
def toy_capacity() -> Callable[..., CapacitySpec]:
    def build(micro: int = 4, name: str = "cpu", **how: Any) -> CapacitySpec:
        return CapacitySpec(workload=workload(**how), micro_batch_size=micro, device=DeviceSettings(name=name))

    return build


@pytest.fixture
def local_engine(tmp_path: Path) -> Iterator[Callable[..., LocalEngine]]:
    """Builder of engines on this test's study; all are closed at its end."""
    engines: list[LocalEngine] = []

    def build(workers: int = 2, cores: int = 8, *, forking: bool = False, **more: Any) -> LocalEngine:
        engine = LocalEngine(tmp_path, workers, cores=cores, command=FORKING if forking else COMMAND, **more)
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        engine.close()


@pytest.fixture(
    params=[
        "inline",
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("forking", marks=[pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="forks")]),
    ]
)
def any_engine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Engine]]:
    """Each engine in turn, for the contract."""
    engines: list[Engine] = []
    if request.param == "inline":
        monkeypatch.setitem(sys.modules, "batchlab.runs.execute", load_beside("toy_worker"))

    def build() -> Engine:
        engine: Engine
        if request.param == "inline":
            engine = InlineEngine(tmp_path)
        else:
            engine = LocalEngine(tmp_path, 2, cores=8, command=FORKING if request.param == "forking" else COMMAND)
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        engine.close()


@pytest.fixture
def carry_out() -> Callable[..., list[Record]]:
    """Submit specs, wait for all, return their records in the order of the specs."""

    def run(engine: Engine, *specs: Spec, exclusive: bool = False, events: list[Event] | None = None) -> list[Record]:
        for spec in specs:
            engine.submit(spec, exclusive=exclusive)
        found: dict[str, Record] = {}
        silent = 0
        while not found.keys() >= {run_id(spec) for spec in specs}:
            news = engine.wait(1.0)
            silent = 0 if news else silent + 1
            assert silent < 120, "two minutes without any event"
            for event in news:
                if events is not None:
                    events.append(event)
                if isinstance(event, Finished):
                    found[event.record.run_id] = event.record
        return [found[run_id(spec)] for spec in specs]

    return run


@pytest.fixture
def starts(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """What workers began, in the order of its beginning."""

    def read() -> list[dict[str, Any]]:
        text = (tmp_path / "cache" / "starts.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    return read
