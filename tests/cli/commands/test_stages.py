"""Studies in which a search has nothing to find: a clear answer, never a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchlab.cli.app import run

pytestmark = pytest.mark.slow  # every study starts worker processes

SMALL = ["--search", "adaptive", "--seeds", "1", "--confirm", "0", "--token-budget", "2048"]


def study(folder: Path, *arguments: str, sizes: str = "8,16") -> int:
    return run(["study", "simulated", "--out", str(folder), "--batch-sizes", sizes, *SMALL, *arguments])


def summary(capsys: pytest.CaptureFixture[str]) -> str:
    output = capsys.readouterr()
    assert "Traceback" not in output.out + output.err
    return output.out


def test_one_batch_size_is_tuned_and_said_to_be_the_only_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study(tmp_path / "s", sizes="16") == 0
    assert "16 samples" in summary(capsys)
    plan = json.loads((tmp_path / "s" / "training_plan.json").read_text())
    assert plan["batch_configuration"]["global_batch_size"] == 16


def test_when_every_run_diverges_there_is_no_plan_and_the_reason_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks = ("--set", "model.rounding=1e3", "--set", "model.samples=1024")  # each update adds an error this large
    assert study(tmp_path / "s", "--learning-rates", "0.4,1.6", *breaks) == 1
    said = summary(capsys)
    assert "cannot tell" in said
    assert "diverged" in said
    assert "8 runs" in said
    assert not (tmp_path / "s" / "training_plan.json").exists()
    assert run(["plan", str(tmp_path / "s")]) == 2
    assert "no plan" in capsys.readouterr().err


def test_when_all_losses_are_identical_it_ends_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coarse = ("--set", "model.rounding=0", "--set", "model.irreducible_loss=1e9")  # floats there are 1e-7 apart
    assert study(tmp_path / "s", "--learning-rates", "1e-12,1e-11", *coarse) == 0
    said = summary(capsys)
    assert "identical" in said


def test_an_earlier_study_of_another_model_is_refused_by_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study(tmp_path / "earlier", "--max-runs", "2") == 0
    capsys.readouterr()
    arguments = ("--prior", str(tmp_path / "earlier"), "--set", "model.dimensions=32")
    assert study(tmp_path / "s", *arguments) == 2
    said = capsys.readouterr().err
    assert "another model (parameters: 64, here 32; model.dimensions: 64, here 32)" in said
    assert not (tmp_path / "s").exists()
