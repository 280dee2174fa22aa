"""Wrong input: one or two sentences, exit code 2, nothing written, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchlab.cli.app import run


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    before = sorted(folder.rglob("*"))
    code = run(arguments)
    output = capsys.readouterr()
    assert code == 2, output
    assert "Traceback" not in output.err
    assert output.err.startswith("batchlab: ")
    assert sorted(folder.rglob("*")) == before, "something was written"
    sentences = output.err.strip()
    assert len(sentences) < 700
    return sentences


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["study", "quickstrat"], "Did you mean 'quickstart'?"),
        (["stduy", "quickstart"], "Did you mean 'study'?"),
        (["study"], "TASK"),
        (["study", "nowhere.py"], "There is no file 'nowhere.py'"),
        (["study", "nowhere.toml"], "There is no file 'nowhere.toml'"),
        (["study", "quickstart", "--batch-sizes", "8,-4"], "-4"),
        (["study", "quickstart", "--batch-sizes", "2.5"], "2.5"),
        (["study", "quickstart", "--batch-sizes", "0"], "0"),
        (["study", "quickstart", "--learning-rates", "fast"], "fast"),
        (["study", "quickstart", "--learning-rates", "-1e-3"], "-1e-3"),
        (["study", "quickstart", "--seeds", "0"], "--seeds '0': give a whole number from 1 to 1,000"),
        (["study", "quickstart", "--token-budget", "many"], "many"),
        (["study", "quickstart", "--time-budget", "soon"], "soon"),
        (["study", "quickstart", "--max-tokens", "few"], "--max-tokens 'few'"),
        (["study", "quickstart", "--search", "random"], "sweep.search is 'random'"),
        (["study", "quickstart", "--learning-rates", "1e-2:1e-4"], "lower end first"),
        (["study", "quickstart", "--batch-sizes", "64:8"], "smaller end first"),
        (["study", "quickstart", "--memory-limit", "lots"], "16GiB"),
        (["study", "quickstart", "--device", "tpu"], "There is no device 'tpu'"),
        (["study", "quickstart", "--set", "optimizer.beta3=0.9"], "Did you mean 'optimizer.beta"),
        (["study", "quickstart", "--set", "optimizer.beta2"], "name=value"),
        (["study", "quickstart", "--set", "optimizer.beta2=1.5"], "optimizer.beta2 is 1.5"),
        (["study", "quickstart", "--set", "name.first=x"], "not a section"),
        (["study", "quickstart", "--seeds", "1.5"], "--seeds '1.5': give a whole number"),
        (["study", "quickstart", "--seeds", "100000000000000000000"], "from 1 to 1,000"),
        (["study", "quickstart", "--workers", "100000000"], "from 1 to 1,024"),
        (["study", "quickstart", "--batch-sizes", ""], "--batch-sizes is empty"),
        (["study", "quickstart", "--out="], "--out is empty"),
        (["study", "quickstart", "--token-budget", "1e400"], "more than 1,000,000T"),
        (["study", "quickstart", "--time-budget", f"{'9' * 400}h"], "more than 100,000h"),
        (["study", "quickstart", "--set", "budget=3", "--time-budget", "3h"], "'budget' is a single value"),
        (["study", "quickstart", "--set", "optimiser.beta2=0.9"], "Did you mean 'optimizer'?"),
        (["study", "quickstart", "--set", "seeds=2"], "Did you mean 'sweep.seeds'?"),
        (["study", "quickstart", "--set", "sweep=2"], "not a section. Possible: sweep.confirm"),
        (["study", "quickstart", "--sedes", "2"], "Did you mean --seeds?"),
        (["study", "quickstart", "two"], "'two' is one argument too many"),
        (["study", "quickstart", "--memory-limit", "64"], "give a unit, like 16GiB"),
        (["capacity", "quickstart", "--predict", "80"], "give a unit, like 16GiB"),
        (["capacity", "quickstart", "--predict", "1,5GiB"], "is not an amount of memory"),
        (["plan", "nowhere", "--target-loss", "inf"], "above 0"),
        (["report", "nowhere", "--devices", "0"], "from 1 to 1,000,000"),
        (["report", "nowhere"], "is not a study"),
        (["plan", "nowhere"], "is not a study"),
        (["recipes", "nothing"], "Possible: quickstart"),
    ],
)
def test_refused_before_anything_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(arguments, capsys, tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("task = 3", "must name what to train"),
        ("[sweep]\nseeds = 2", "must name what to train"),
        ('task = "quickstart"\n[sweeep]\nseeds = 2', "sweeep"),
        ('task = "quickstart', "not valid TOML"),
    ],
)
def test_study_toml_that_does_not_say_what_it_should(
    content: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(content)
    assert said in refused(["study", "mine.toml"], capsys, tmp_path)


def test_a_folder_is_no_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "is a folder" in refused(["study", str(tmp_path)], capsys, tmp_path)


def test_a_path_that_no_file_system_allows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "File name too long" in refused(["study", "x" * 300 + ".py"], capsys, tmp_path)
    assert "5,000 characters" in refused(["study", "x" * 5000], capsys, tmp_path)


def test_deep_toml(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(f"x = {'[' * 5000}")
    assert "nests too deeply" in refused(["study", str(tmp_path / "deep.toml")], capsys, tmp_path)


def test_a_reader_that_goes_away_and_a_closed_output(tmp_path: Path) -> None:
    """As with `| head -1`: it ends without a word; and where there is no output at all, likewise."""
    command = [sys.executable, "-m", "batchlab", "settings"]
    reading, writing = os.pipe()
    os.close(reading)
    for output in (writing, None):
        ended = subprocess.run(
            command if output else ["sh", "-c", '"$@" >&-', "sh", *command],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
        assert ended.returncode == (141 if output else 0)
        assert ended.stderr == ""
    os.close(writing)


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    """It is printed as it is, and never a traceback."""
    name = os.fsencode(tmp_path) + b"/\xff"
    ended = subprocess.run([sys.executable, "-m", "batchlab", "status", name], capture_output=True, check=False)
    assert ended.returncode == 2
    assert name in ended.stderr
