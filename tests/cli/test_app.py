"""Wrong input: one or two sentences, exit code 2, nothing written, no traceback."""

from __future__ import annotations

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
        (["study", "quickstart", "--device", "tpu"], "device.name"),
        (["study", "quickstart", "--set", "optimizer.beta3=0.9"], "Did you mean 'optimizer.beta"),
        (["study", "quickstart", "--set", "optimizer.beta2"], "name=value"),
        (["study", "quickstart", "--set", "optimizer.beta2=1.5"], "optimizer.beta2 is 1.5"),
        (["study", "quickstart", "--set", "name.first=x"], "not a section"),
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
