"""What `batchlab doctor` says of this machine."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from batchlab.cli import doctor


def test_every_extra_but_torch_and_dev_is_an_optional_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(doctor.OPTIONAL) == set(project["optional-dependencies"]) - {"torch", "dev"}


def test_optional_packages_are_listed_with_their_version_or_how_to_install_them(monkeypatch: pytest.MonkeyPatch):
    def version(package: str) -> str:
        if package == "wandb":
            raise importlib.metadata.PackageNotFoundError(package)
        return "1.2.3"

    monkeypatch.setattr(doctor, "version", version)
    lines = doctor.doctor_lines()
    assert lines[0].startswith("batchlab ")
    assert any(line.startswith("tokenizers 1.2.3 (BPE") for line in lines)
    assert lines[-1] == "wandb: not installed (--track wandb); run: pip install 'batchlab[wandb]'"
