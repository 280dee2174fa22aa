"""What is installed: torch is never replaced, and the embedded text is found from a wheel too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return next(folder.glob("batchlab-*.whl"))


@pytest.mark.slow
def test_installing_the_torch_extra_leaves_an_installed_torch_alone(wheel: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", report, f"{wheel}[torch]"],
        check=True,
        capture_output=True,
        timeout=300,
    )
    installed = {item["metadata"]["name"].lower() for item in json.loads(report.read_text())["install"]}
    assert "torch" not in installed
    assert not any(name.startswith(("nvidia", "cuda")) for name in installed)


@pytest.mark.slow
def test_the_embedded_text_and_the_report_come_out_of_a_wheel(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel],
        check=True,
        capture_output=True,
        timeout=300,
    )
    code = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(site)!r})\n"
        "import batchlab, batchlab.report.html as html\n"
        f"assert batchlab.__file__.startswith({str(site)!r}), batchlab.__file__\n"
        "from batchlab.data.source import open_text_pair\n"
        "from batchlab.experiment import DataConfig\n"
        "pair = open_text_pair(DataConfig(), Path(sys.argv[1]))\n"
        "assert b'import' in bytes(pair.train.ids[:200_000]) and len(pair.valid) > 10_000\n"
        "print(pair.description)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(tmp_path / "cache")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "standard library" in done.stdout.lower()
    assert (site / "batchlab" / "py.typed").exists()
