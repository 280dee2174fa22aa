"""What is built and installed: a wheel and an sdist that run without torch, and never replace a torch that is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

import batchlab

ROOT = Path(__file__).parents[1]
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
# Pinned versions, and nothing of this checkout: PYTHONPATH would bring its source into a clean environment.
ENVIRONMENT = os.environ | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
ENVIRONMENT.pop("PYTHONPATH", None)


class Distributions(NamedTuple):
    sdist: Path
    wheel: Path


def _run(command: Sequence[str | Path], folder: Path, timeout: float = 300) -> str:
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Building and installing need a package index. Skips without one; where CI is set that is a failure."""
    asked = [sys.executable, *PIP, "--retries", "1", "--timeout", "15", "download", "--no-deps", "hatchling"]
    folder = tmp_path_factory.mktemp("index")
    done = subprocess.run(asked, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        return
    reason = f"no package index can be reached: {done.stderr.strip()[-300:]}"
    if os.environ.get("CI"):
        pytest.fail(f"CI must test the packages: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def distributions(index: None, tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """What is released: an sdist of the source tree, and a wheel built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    _run([sys.executable, "-m", "build", "--outdir", folder, ROOT], folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Distributions(sdist, wheel)


@pytest.fixture(scope="module")
def clean_python(index: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize(("platform", "expected"), [("darwin", {"mlx"}), ("linux", {"mlx[cpu]"})])
def test_the_mlx_extra_picks_the_build_of_the_platform_and_brings_no_torch(platform: str, expected: set[str]) -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(text) for text in [*asked["dependencies"], *asked["optional-dependencies"]["mlx"]]]
    chosen = [one for one in wanted if one.marker is None or one.marker.evaluate({"sys_platform": platform})]
    names = {one.name + "".join(f"[{extra}]" for extra in sorted(one.extras)) for one in chosen}
    assert {name for name in names if name.startswith("mlx")} == expected
    assert "torch" not in names


@pytest.mark.slow
@pytest.mark.parametrize("kind", Distributions._fields)
def test_a_clean_environment_runs_a_study_without_torch(
    kind: str, distributions: Distributions, clean_python: Path, tmp_path: Path
) -> None:
    # The second kind finds its dependencies there already, and nothing of the first kind.
    _run([clean_python, *PIP, "uninstall", "--yes", "batchlab"], tmp_path)
    _run([clean_python, *PIP, "install", getattr(distributions, kind)], tmp_path, timeout=600)
    _run([clean_python, "-c", "import importlib.util as util; assert util.find_spec('torch') is None"], tmp_path)

    said = _run([clean_python.parent / "batchlab", "study", "simulated"], tmp_path)
    assert "TRAIN WITH" in said
    study = tmp_path / "studies" / "simulated"
    assert json.loads((study / "training_plan.json").read_text())
    assert all(
        (study / name).stat().st_size > 0 for name in ("report.html", "report.md", "outcomes.csv", "results.csv")
    )


@pytest.mark.slow
def test_the_sdist_holds_what_a_release_promises(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as archive:
        top, *_ = archive.getnames()[0].split("/")
        names = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "CITATION.cff",
        "Makefile",
        "constraints.txt",
    } <= names
    assert {"tests/test_packaging.py", "docs/releasing.md", "src/batchlab/py.typed"} <= names


@pytest.mark.slow
def test_installing_the_torch_extra_leaves_an_installed_torch_alone(
    distributions: Distributions, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    extra = f"{distributions.wheel}[torch]"
    _run([sys.executable, *PIP, "install", "--dry-run", "--report", report, extra], tmp_path)
    installed = {item["metadata"]["name"].lower() for item in json.loads(report.read_text())["install"]}
    assert "torch" not in installed
    assert not any(name.startswith(("nvidia", "cuda")) for name in installed)


@pytest.mark.slow
def test_the_embedded_text_and_the_report_come_out_of_a_wheel(distributions: Distributions, tmp_path: Path) -> None:
    site = tmp_path / "site"
    _run([sys.executable, *PIP, "install", "--no-deps", "--target", site, distributions.wheel], tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(site)!r})\n"
        "import batchlab, batchlab.report.page as page\n"
        f"assert batchlab.__file__.startswith({str(site)!r}), batchlab.__file__\n"
        "from batchlab.data.source import open_text_pair\n"
        "from batchlab.core.experiment import DataConfig\n"
        "pair = open_text_pair(DataConfig(), Path(sys.argv[1]))\n"
        "assert b'import' in bytes(pair.train.ids[:200_000]) and len(pair.valid) > 10_000\n"
        "print(pair.description)\n"
        "import hashlib, json\n"
        "from importlib.resources import files\n"
        "package = files('batchlab.report')\n"
        "named = json.loads(package.joinpath('vendor/plotly-cartesian.json').read_text())\n"
        "assert hashlib.sha256(package.joinpath(page.PLOTLY).read_bytes()).hexdigest() == named['sha256']\n"
        "assert package.joinpath('vendor/LICENSE').is_file()\n"
        "assert all(package.joinpath(f'templates/report.{name}.j2').is_file() for name in ('html', 'md'))\n"
    )
    said = _run([sys.executable, "-I", "-c", code, tmp_path / "cache"], tmp_path)
    assert "standard library" in said.lower()
    assert (site / "batchlab" / "py.typed").exists()


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert batchlab.__version__ == project["version"] == citation["version"]
    assert citation["authors"] == project["authors"]
    assert citation["license"] == project["license"]
    assert {"cff-version", "message", "title"} <= citation.keys()
