"""Studies whose diverged cells are tried again, through the command line, on the simulated device."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.analysis.findings import Findings
from batchlab.cli.app import run
from batchlab.core.record import Outcome
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings

ASKED = [
    *("--batch-sizes", "4,16", "--learning-rates", "0.4,1.4,5.6", "--search", "grid", "--token-budget", "2048"),
    *("--set", "sweep.max_extensions=0", "--set", "schedule.kind=constant", "--seeds", "2"),
]


def study(folder: Path, *more: str) -> Findings:
    assert run(["study", "simulated", "--out", str(folder), *ASKED, *more]) == 0
    return read_findings(Store.open(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("retries") / "study"


@pytest.fixture(scope="module")
def found(folder: Path) -> Findings:
    return study(folder, "--retry-diverged", "2")


def test_each_attempt_is_a_run_of_another_cell(found: Findings) -> None:
    cells = {(run.global_batch_size, run.learning_rate, run.warmup_fraction): run for run in found.runs}
    for size in (4, 16):
        assert cells[size, 5.6, 0.1].outcome is Outcome.DIVERGED
        assert cells[size, 2.8, 0.2].outcome is Outcome.DIVERGED
        assert cells[size, 1.4, 0.4].outcome is Outcome.COMPLETED
    assert len({run.run_id for run in found.runs}) == len(found.runs)
    retried = {each.diverged.global_batch_size: each for each in found.retried}
    assert [len(each.attempts) for each in retried.values()] == [2, 2]
    assert all(each.trained is not None and each.trained.learning_rate == 1.4 for each in retried.values())


def test_the_answer_is_judged_at_the_warmup_it_had(found: Findings) -> None:
    assert found.recommended is not None
    size = found.recommended.layout.global_batch_size
    share = found.schedule.warmup_fraction
    assert any(
        run.learning_rate == found.recommended.learning_rate and run.warmup_fraction == share
        for run in found.runs
        if run.global_batch_size == size and run.outcome is Outcome.COMPLETED
    )
    assert found.surface is not None
    for row in found.surface.rows:
        assert {run.warmup_fraction for cell in row.cells for run in cell.runs} == {row.warmup_fraction}


def test_the_report_says_what_was_tried_again(folder: Path, found: Findings) -> None:
    text = (folder / "report.md").read_text()
    assert "2 cells diverged and were tried again" in text
    assert "1.4 with a warm-up of 40 %" in text
    assert text.count("(cells that diverged, tried again)") == 4  # 20 % and 40 % at both sizes


def test_the_same_command_makes_no_further_run(folder: Path, found: Findings) -> None:
    before = sorted(path.name for path in (folder / "runs").iterdir())
    study(folder, "--retry-diverged", "2")
    assert sorted(path.name for path in (folder / "runs").iterdir()) == before


def test_without_the_option_a_diverged_cell_is_left_alone(tmp_path: Path) -> None:
    plain = study(tmp_path / "s")
    assert plain.retried == ()
    assert {run.warmup_fraction for run in plain.runs} == {0.1}


def test_what_is_no_number_of_attempts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "simulated", "--out", str(tmp_path / "s"), "--retry-diverged", "11"]) == 2
    assert "--retry-diverged" in capsys.readouterr().err
