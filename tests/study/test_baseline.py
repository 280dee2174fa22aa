"""Studies that reproduce a known loss first, through the command line, on the simulated device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.baseline import Reproduction
from batchlab.cli.app import run
from batchlab.core.experiment import ScheduleConfig
from batchlab.core.schedule import Schedule
from batchlab.simulated.machine import simulation
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings

BUDGET, SIZE, RATE = 2048, 16, 0.8
ASKED = [
    *("--batch-sizes", "4,16", "--learning-rates", "0.4,1.4", "--search", "grid", "--token-budget", str(BUDGET)),
    *("--set", "sweep.max_extensions=0", "--set", "schedule.kind=constant", "--set", "model.copies=64"),
]


def expected() -> float:
    """The baseline's expected loss, by the formula of the problem."""
    schedule = Schedule(ScheduleConfig(kind="constant", warmup_fraction=0.1), RATE, BUDGET, SIZE)
    rates = [schedule.mean(step * SIZE, (step + 1) * SIZE) for step in range(BUDGET // SIZE)]
    return float(simulation({"copies": 64}).problem.expected_losses(np.array(rates)[:, None], SIZE)[0])


def study(folder: Path, loss: float, *more: str) -> tuple[int, Findings]:
    code = run(["study", "simulated", "--out", str(folder), *ASKED, "--baseline", f"{SIZE}:{RATE}:{loss}", *more])
    return code, read_findings(Store.open(folder))


def test_a_baseline_that_is_reproduced_is_followed_by_the_sweep(tmp_path: Path) -> None:
    more = ("--set", "baseline.source=the formula", "--set", "baseline.tokens_per_second=1e9")
    code, found = study(tmp_path / "s", expected(), *more)
    assert code == 0
    assert found.baseline is not None
    assert found.baseline.verdict is Reproduction.REPRODUCED
    assert found.baseline.runs == 3
    assert found.baseline.slow
    assert found.recommended is not None
    report = (tmp_path / "s" / "report.md").read_text()
    assert "Baseline, batch 16 at LR 0.8 (the formula): reproduced" in report
    assert "slower than expected" in report


@pytest.mark.parametrize(("factor", "verdict"), [(0.5, Reproduction.HIGHER), (2.0, Reproduction.LOWER)])
def test_one_that_is_missed_ends_the_study_until_it_is_told_to_go_on(
    tmp_path: Path, factor: float, verdict: Reproduction, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, loss = tmp_path / "s", factor * expected()
    code, found = study(folder, loss)
    assert code == 1
    assert "The baseline was not reproduced" in capsys.readouterr().out
    assert found.baseline is not None
    assert found.baseline.verdict is verdict
    assert {run.learning_rate for run in found.runs} == {RATE}
    before = {run.run_id for run in found.runs}
    code, found = study(folder, loss, "--set", "baseline.if_missed=continue")
    assert code == 0
    assert before < {run.run_id for run in found.runs}
    assert found.recommended is not None
    assert "not reproduced" in (folder / "report.md").read_text()


def test_its_runs_count_against_a_limit_on_all_tokens(tmp_path: Path) -> None:
    code, found = study(tmp_path / "s", expected(), "--max-tokens", str(8 * BUDGET))
    assert code == 0
    assert len(found.runs) <= 8


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--baseline", "16:0.8"], "write batch size"),
        (["--baseline", "16:fast:1"], "write batch size"),
        (["--baseline", "5:0.8:1.5"], "none of the sweep's"),
        (["--set", "baseline.batch_size=16"], "baseline"),
    ],
)
def test_what_is_no_baseline_is_refused(
    tmp_path: Path, given: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["study", "simulated", "--out", str(tmp_path / "s"), *ASKED, *given]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_dry_run_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["study", "simulated", "--out", str(tmp_path / "s"), *ASKED, "--dry-run"]
    assert run([*given, "--baseline", "16:0.8:1.5"]) == 0
    told = capsys.readouterr().out
    assert "baseline: 3 runs of batch 16 at LR 0.8, which should reach 1.500; otherwise the study stops there" in told
