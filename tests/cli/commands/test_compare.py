from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from batchlab.cli.app import run
from batchlab.core.experiment import build_experiment
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    for name, kind in (("cosine", "cosine"), ("constant", "constant")):
        values = merge(resolve_task("simulated"), {"schedule": {"kind": kind}, "sweep": {"search": "adaptive"}})
        run_study(build_experiment(values), folder / name, lambda path, workers: InlineEngine(path), SilentView())
    return folder


def test_the_verdict_comes_first(studies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(studies / "constant"), str(studies / "cosine")]) == 0

    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("cosine better by ")
    assert lines[-1] == "  schedule.kind: constant | cosine"


def test_the_gate(studies: Path) -> None:
    better, worse = str(studies / "cosine"), str(studies / "constant")

    assert run(["compare", worse, better, better, "--exit-code"]) == 0
    assert run(["compare", better, worse, "--exit-code"]) == 1


def test_a_table_and_json(studies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = studies / "cosine"

    assert run(["compare", str(study), str(study / "outcomes.csv"), "--json"]) == 0

    (told,) = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "within_noise"
    assert told["loss_difference"]["low"] < 0 < told["loss_difference"]["high"]


def test_a_folder_with_one_table(studies: Path, tmp_path: Path) -> None:
    (tmp_path / "sweep.csv").write_text((studies / "cosine" / "outcomes.csv").read_text())

    assert run(["compare", str(studies / "cosine"), str(tmp_path)]) == 0


def test_neither_study_nor_table(studies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.csv").write_text("batch_size,steps,val_loss\n8,9,2\n16,9,2\n32,9,2\n")

    assert run(["compare", str(studies / "cosine"), str(studies)]) == 2
    assert run(["compare", str(studies / "cosine"), str(tmp_path / "bad.csv")]) == 2
    assert "contradicts itself" in capsys.readouterr().err


def test_a_page_draws_both_on_the_same_axes(studies: Path, tmp_path: Path) -> None:
    page = tmp_path / "compare.html"

    assert run(["compare", str(studies / "constant"), str(studies / "cosine"), "--page", str(page)]) == 0

    text = page.read_text()
    figures = json.loads(re.findall(r'id="figures">(.*?)</script>', text)[0])
    for key in ("losses", "curves"):
        assert {trace["name"] for trace in figures[key]["data"]} == {"constant", "cosine"}
    assert "cosine better by" in text
    assert "schedule.kind" in text
    assert text.count("<script") == 4


def test_names_on_a_page_are_escaped(studies: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "<img src=x onerror=alert(1)>.csv"
    hostile.write_text((studies / "cosine" / "outcomes.csv").read_text())
    page = tmp_path / "compare.html"

    assert run(["compare", str(hostile), str(studies / "cosine"), "--page", str(page)]) == 0

    assert "<img" not in page.read_text()
