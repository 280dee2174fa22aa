"""What `batchlab doctor` finds on this machine."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from batchlab import __version__
from batchlab.cli import doctor
from batchlab.cli.app import run
from batchlab.core.errors import InputError
from batchlab.simulated.framework import SimulatedFramework


def test_every_extra_but_frameworks_and_dev_is_an_optional_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {check.name for check in doctor.OPTIONAL} == set(project["optional-dependencies"]) - {
        *doctor.NAMES,
        "dev",
        "docs",
    }


def test_an_optional_package_is_found_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "wandb":
            raise importlib.metadata.PackageNotFoundError(package)
        return "1.2.3"

    monkeypatch.setattr(doctor, "version", version)
    found = {check.name: check.run() for check in doctor.OPTIONAL}
    assert found["tokenizers"].status == "ok"
    assert found["tokenizers"].details.startswith("1.2.3")
    assert found["wandb"].status == "missing"
    assert found["wandb"].remedy == "pip install 'batchlab[wandb]'"


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise InputError(name)

    monkeypatch.setattr(doctor, "load_framework", none)
    found = {check.name: check.run() for check in doctor.checks(Path())}
    assert found["torch"].status == found["device"].status == "missing"
    assert found["torch"].remedy == "pip install 'batchlab[torch]'"
    assert found["cores"].status == found["memory"].status == "ok"


def test_every_check_has_a_line_and_a_name_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    names = [check.name for check in doctor.checks(Path())]
    assert [line[1] for line in lines] == names
    assert len(set(names)) == len(names)
    assert {line[0] for line in lines} <= {"ok", "warn", "missing"}
    assert lines[0][2].rstrip(",") == __version__


def test_a_remedy_ends_the_line() -> None:
    line = doctor.describe("torch", doctor.Finding("missing", "needed for training", "pip install x"))
    assert line.split(maxsplit=2) == ["missing", "torch", "needed for training; run: pip install x"]


def test_a_place_without_locks_is_said_before_a_study_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = doctor.locks(tmp_path / "not" / "yet")
    assert check.run().status == "ok"

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)
    found = check.run()
    assert found.status == "warn"
    assert "--out" in found.details
    assert run(["study", "simulated", "--out", str(tmp_path / "study")]) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_is_not_there_cannot_be_tested(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card here")
    assert run(["doctor", "--gpu"]) == 2
    assert "no CUDA card" in capsys.readouterr().err


def test_the_device_of_the_first_framework_that_has_one_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found(SimulatedFramework):
        def __init__(self, device: str) -> None:
            self.device = device

        def resolve_device(self, name: str) -> str:
            return self.device

    found = {"torch": Found("mps"), "mlx": Found("gpu")}
    monkeypatch.setattr(doctor, "load_framework", found.__getitem__)
    assert doctor.device_test() is doctor.DEVICE_TESTS["mlx"]
    found["torch"] = Found("cuda")
    assert doctor.device_test() is doctor.DEVICE_TESTS["torch"]
    found |= {"torch": Found("mps"), "mlx": Found("cpu")}
    with pytest.raises(InputError, match="the best device of torch is mps; the best device of mlx is cpu"):
        doctor.device_test()


def test_checks_that_ended_are_kept_when_the_process_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"check": "limit", "numbers": {"fits": True, "fits_more": False}}
    code = f"print('noise'); print({json.dumps(json.dumps(said))}); raise SystemExit('CUDA error')"
    found = list(doctor.card_checks((sys.executable, "-c", code)))
    assert found == [said, {"check": "process", "error": "CUDA error"}]
    monkeypatch.setattr(doctor, "card_checks", lambda program: iter(found))
    assert not doctor.check_card(tmp_path / "card.json", doctor.DEVICE_TESTS["torch"])
    written = json.loads((tmp_path / "card.json").read_text())["checks"]
    assert [check["verdict"] for check in written] == ["ok", "fail"]


def test_hosts_are_tested_as_a_study_would_find_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--launch", "env", "--out", str(tmp_path / "studies")]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["ok", "env"]
    hosts = tmp_path / "hosts.toml"
    hosts.write_text("[[host]]\nlaunch = 'env'\n[[host]]\nlaunch = 'no-such-launcher'\n")
    assert run(["doctor", "--hosts", str(hosts), "--out", str(tmp_path / "studies")]) == 1
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ok", "fail"]
    assert [path.name for path in tmp_path.iterdir()] == ["hosts.toml"], "nothing is left behind"
