"""Where a study may run: enough devices on one host, and the same task on every one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.cli.app import run
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.record import TaskInfo
from batchlab.core.settings import merge
from batchlab.core.worker import WorkerCommand
from batchlab.engines.hosts import Host
from batchlab.engines.inline import InlineEngine
from batchlab.study.open_study import prepare
from batchlab.study.placement import require_devices, require_same_task
from batchlab.study.task_source import resolve_task


def asked(devices: int) -> Experiment:
    return build_experiment(merge(resolve_task("simulated"), {"device": {"data_parallel_size": devices}}))


@pytest.fixture(scope="module")
def info() -> TaskInfo:
    return prepare(asked(1), lambda path, workers: InlineEngine(path))[1]


def host(name: str, cards: int) -> Host:
    return Host(name, WorkerCommand(("worker",), prefix=(name,)), 1, 8, tuple(map(str, range(cards))))


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ({"gpu1": 2, "gpu2": 1}, r"none shows so many CUDA cards \(gpu1: 2, gpu2: 1\); use at most 2"),
        ({"gpu1": 0}, r"none shows so many CUDA cards \(gpu1: 0\); check CUDA there"),
        ({"gpu1": 2, "gpu2": 4}, r"gpu1 shows too few CUDA devices \(gpu1: 2, gpu2: 4\); put gpu2 first"),
    ],
)
def test_too_many_devices_for_every_host(info: TaskInfo, hosts: dict[str, int], said: str) -> None:
    on_cards = info.model_copy(update={"device": "cuda"})
    places = [host(name, cards) for name, cards in hosts.items()]
    with pytest.raises(InputError, match=f"--devices 4.*{said}"):
        require_devices(asked(4), on_cards, places)


def test_enough_devices(info: TaskInfo) -> None:
    on_cards = info.model_copy(update={"device": "cuda"})
    require_devices(asked(4), on_cards, [host("gpu1", 4), host("gpu2", 1)])
    require_devices(asked(4), info, [host("gpu1", 0)])  # the simulated device
    require_devices(asked(1), on_cards, [host("gpu1", 0)])


def test_too_many_devices_here(info: TaskInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(InputError, match="this machine shows 2 CUDA devices; use at most 2"):
        require_devices(asked(4), info.model_copy(update={"device": "cuda"}))
    with pytest.raises(InputError, match="only cuda and cpu devices"):
        require_devices(asked(2), info.model_copy(update={"device": "mps"}))
    with pytest.raises(InputError, match=r"command\.devices"):
        require_devices(asked(2), info.model_copy(update={"integration": "hf"}))


def test_a_host_with_other_data_or_code_is_named(info: TaskInfo, tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text("x = 1\n")
    hosts = [host("gpu2", 1), host("gpu3", 1)]

    def finds(**changed: Any) -> Any:
        return lambda place: info.model_copy(update=changed) if place.name == "gpu3" else info

    require_same_task(hosts, info, finds())
    with pytest.raises(InputError, match="gpu3 has other data than this study"):
        require_same_task(hosts, info, finds(data_digest="0" * 64))
    with pytest.raises(InputError, match=r"gpu3 has another version of .*mine\.py"):
        require_same_task(hosts, info, finds(code={str(code): "0" * 64}))

    def fails(place: Host) -> TaskInfo:
        raise InputError("No such file: /data/train.bin.")

    with pytest.raises(InputError, match="cannot be loaded on gpu2: No such file"):
        require_same_task(hosts, info, fails)


def test_a_study_of_the_simulated_device_on_two_devices_behind_a_launcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["study", "simulated", "--devices", "2", "--batch-sizes", "8", "--learning-rates", "0.8", "--seeds", "1"]
    losses = []
    for name, where in (("here", ()), ("there", ("--launch", "env"))):
        assert run([*command, "--token-budget", "2048", "--out", str(tmp_path / name), *where]) == 0
        losses.append((tmp_path / name / "outcomes.csv").read_text())
    assert losses[0] == losses[1]
