"""Wrong data, code, devices and folders: found before anything is written, exit code 2, one or two sentences."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from batchlab.cli.app import run

pytestmark = pytest.mark.slow

SOUND = """
import numpy as np
import torch
import batchlab

rng = np.random.default_rng(0)
x = rng.normal(size=(400, 4)).astype(np.float32)
y = (x @ np.ones((4, 1), np.float32)).astype(np.float32)
task = batchlab.task(
    model=lambda: torch.nn.Linear(4, 1),
    loss=lambda model, x, y: torch.nn.functional.mse_loss(model(x), y),
    train=(x[:300], y[:300]),
    valid=(x[300:], y[300:]),
)
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    before = sorted(Path().rglob("*"))
    code = run([*arguments])
    output = capsys.readouterr()
    assert code == 2, output
    assert "Traceback" not in output.err
    after = [path for path in sorted(Path().rglob("*")) if path not in before and "__pycache__" not in str(path)]
    assert after == []
    return output.err


@pytest.mark.usefixtures("without_workers")
def test_data_files_that_cannot_be_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.txt").touch()
    Path("short.txt").write_text("too short")
    Path("latin.txt").write_bytes("façade ".encode("latin-1") * 1000)
    np.save("floats.npy", np.ones(1000))
    np.save("words.npy", np.array(["a", "b"], dtype=object), allow_pickle=True)
    Path("folder").mkdir()
    for path, said in [
        ("missing.txt", "missing.txt"),
        ("empty.txt", "empty"),
        ("short.txt", "9 tokens"),
        ("latin.txt", "UTF-8"),
        ("floats.npy", "float"),
        ("words.npy", "words.npy"),
        ("folder", "folder"),
    ]:
        assert said in refused(capsys, "study", "quickstart", "--set", f"data.path={path}"), path


def test_a_device_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA, so asking for it is no mistake here")
    assert "cpu" in refused(capsys, "study", "quickstart", "--device", "cuda")


def test_files_and_modules_that_do_not_import(capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text("import nothing_of_that_name\n")
    Path("syntax.py").write_text("def (:\n")
    Path("no_task.py").write_text("x = 1\n")
    Path("loud.py").write_text("raise SystemExit(3)\n")
    Path("two.py").write_text(SOUND + "\nother = task\nthird = task\ndel task\n")
    for what, said in [
        ("broken.py", "nothing_of_that_name"),
        ("syntax.py", "SyntaxError"),
        ("no_task.py", "batchlab.task"),
        ("loud.py", "loud.py"),
        ("two.py:task", "other"),
        ("package_of_no_name.models:task", "package_of_no_name"),
    ]:
        assert said in refused(capsys, "study", what), what


@pytest.mark.usefixtures("without_workers")
def test_sizes_that_do_not_suit_the_data_or_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(SOUND)
    assert "300 samples" in refused(capsys, "study", "mine.py", "--batch-sizes", "8,512")
    assert "token budget" in refused(capsys, "study", "mine.py", "--token-budget", "50").lower()
    assert "model settings" in refused(capsys, "study", "mine.py", "--set", "model.layers=3")
    assert "data" in refused(capsys, "study", "mine.py", "--set", "data.path=x.txt")


def test_folders_that_are_not_this_study(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(SOUND)
    foreign = Path("photos")
    foreign.mkdir()
    (foreign / "beach.jpg").touch()
    assert "photos" in refused(capsys, "study", "mine.py", "--out", "photos")
    Path("file").touch()
    assert "file" in refused(capsys, "study", "mine.py", "--out", "file")
    if os.geteuid() != 0:
        Path("locked").mkdir(mode=0o500)
        assert "locked" in refused(capsys, "study", "mine.py", "--out", "locked/study")


def test_an_edited_model_file_stops_the_study_with_its_name_until_it_is_accepted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("helper.py").write_text("WIDTH = 4\n")
    Path("mine.py").write_text("import helper\n" + SOUND)
    command = ["study", "mine.py", "--batch-sizes", "8", "--learning-rates", "0.03,0.1", "--seeds", "1"]
    command += ["--token-budget", "1600", "--set", "sweep.max_extensions=0", "--set", "sweep.confirm=0"]
    command += ["--set", "optimizer.weight_decay=0.0"]
    assert run(command) == 0
    assert "TRAIN WITH" in capsys.readouterr().out
    assert run(command) == 0
    capsys.readouterr()
    for edited in ("helper.py", "mine.py"):
        original = Path(edited).read_text()
        Path(edited).write_text(original + "# a remark\n")
        said = refused(capsys, *command)
        assert edited in said
        assert "--accept-edits" in said
        Path(edited).write_text(original)
    Path("helper.py").write_text("WIDTH = 4  # inputs\n")
    assert run([*command, "--accept-edits"]) == 0
    assert run(command) == 0, "an accepted edit stays accepted"
    capsys.readouterr()
    assert "helper.py" in Path("studies/mine/report.md").read_text()
    said = refused(capsys, *command[:-2], "--set", "optimizer.weight_decay=0.1")
    assert "optimizer.weight_decay" in said
