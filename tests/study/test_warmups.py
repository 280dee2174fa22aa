"""Studies with several warm-ups, through the command line, on the simulated device whose losses have a formula."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from batchlab.analysis.findings import Findings
from batchlab.cli.app import run
from batchlab.core.experiment import ScheduleConfig, build_experiment
from batchlab.core.schedule import Schedule
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.simulated.machine import simulation
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task

SIZES, RATES, WARMUPS, BUDGET = (4, 16, 64), (0.2, 0.4, 0.8, 1.4), (0.1, 0.4, 0.8), 4096
MODEL = {"copies": 64}
AXES = [
    *("--batch-sizes", "4,16,64", "--learning-rates", "0.2,0.4,0.8,1.4", "--warmup", "0.1,0.4,0.8"),
    *("--set", "sweep.max_extensions=0", "--set", "schedule.kind=constant", "--set", "model.copies=64"),
]


def expected(size: int, rate: float, warmup: float) -> float:
    """The expected loss of a run, by the formula of the problem."""
    schedule = Schedule(ScheduleConfig(kind="constant", warmup_fraction=warmup), rate, BUDGET, size)
    rates = [schedule.mean(step * size, (step + 1) * size) for step in range(BUDGET // size)]
    return float(simulation(MODEL).problem.expected_losses(np.array(rates)[:, None], size)[0])


def tuned(size: int, warmup: float) -> float:
    return min(expected(size, rate, warmup) for rate in RATES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warmups") / "study"
    assert run(["study", "simulated", "--out", str(folder), *AXES]) == 0
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Findings:
    return read_findings(Store.open(folder))


def test_each_size_takes_the_warmup_that_is_best_by_the_formula(found: Findings) -> None:
    assert found.warmups is not None
    taken = {size.global_batch_size: size.taken for size in found.warmups.sizes}
    assert taken == {size: min(WARMUPS, key=lambda warmup: tuned(size, warmup)) for size in SIZES}
    surface = found.surface
    assert surface is not None
    assert {row.global_batch_size: row.warmup_fraction for row in surface.rows} == taken
    assert all(len(row.cells) == len(RATES) for row in surface.rows)


def test_costs_and_trend_enclose_the_formula(found: Findings) -> None:
    assert found.warmups is not None
    for size in found.warmups.sizes:
        for tried in size.tried:
            if tried.cost is None:
                assert tried.warmup_fraction == size.taken
                continue
            truth = tuned(size.global_batch_size, tried.warmup_fraction) - tuned(size.global_batch_size, size.taken)
            assert tried.cost.low is not None
            assert tried.cost.high is not None
            wider = tried.cost.high - tried.cost.low  # six intervals of 95 %, some of a single run
            assert tried.cost.low - wider <= truth <= tried.cost.high + wider
    trend = found.warmups.trend
    assert trend is not None
    assert trend.gain.low is not None
    assert trend.gain.high is not None
    truth = (tuned(4, 0.8) - tuned(4, 0.1)) - (tuned(64, 0.8) - tuned(64, 0.1))
    assert trend.gain.low <= truth <= trend.gain.high < 0  # here larger batches want a shorter one


def test_plan_table_and_report_name_the_chosen_one(folder: Path, found: Findings) -> None:
    assert found.recommended is not None
    share = found.schedule.warmup_fraction
    assert found.recommended.warmup_tokens == share * BUDGET
    plan = json.loads((folder / "training_plan.json").read_text())
    assert plan["batch_configuration"]["schedule"]["warmup_fraction"] == share
    assert plan["batch_configuration"]["warmup_tokens"] == share * BUDGET
    assert plan["provenance"]["warmup_tokens"]["status"] == "measured"
    with (folder / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "train"]
    assert {float(row["warmup_fraction"]) for row in rows} == set(WARMUPS)
    for name in ("report.md", "report.html"):
        assert "the best of 10 %, 40 % and 80 % tried" in (folder / name).read_text()


def test_the_same_command_makes_no_further_run(folder: Path) -> None:
    before = sorted(path.name for path in (folder / "runs").iterdir())
    assert run(["study", "simulated", "--out", str(folder), *AXES]) == 0
    assert sorted(path.name for path in (folder / "runs").iterdir()) == before


def test_an_adaptive_search_takes_one_warmup_after_the_other(tmp_path: Path) -> None:
    smaller = ["--batch-sizes", "4,16", *AXES[2:], "--token-budget", "1024", "--search", "adaptive"]
    assert run(["study", "simulated", "--out", str(tmp_path / "s"), *smaller]) == 0
    found = read_findings(Store.open(tmp_path / "s"))
    assert found.recommended is not None
    assert found.schedule.warmup_fraction == 0.1
    assert found.search_stopped is not None
    assert {run.warmup_fraction for run in found.runs} == set(WARMUPS)


@pytest.mark.parametrize("given", ["1", "-0.1", "5%", "0.1,,0.2", "nan"])
def test_what_is_no_share_is_refused(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "simulated", "--out", str(tmp_path / "s"), "--warmup", given]) == 2
    assert "not a share of a run" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


TINY = {
    "batch": {"global_batch_sizes": (4, 16)},
    "sweep": {
        "learning_rates": (5e-3, 2e-2),
        "warmup_fractions": (0.1, 0.4),
        "seeds": 2,
        "confirm": 0,
        "max_extensions": 0,
    },
    "budget": {"token_budget": 32_768},
    "evaluation": {"points": 2, "samples": 512},
    "diagnostics": "off",
    "noise": {"points": 0},
    "device": {"name": "cpu", "threads": 1, "workers": 1},
}


@pytest.mark.slow
def test_a_decoder_is_studied_at_two_warmups(tmp_path: Path) -> None:
    asked = build_experiment(merge(resolve_task("quickstart"), TINY))
    done = run_study(asked, tmp_path / "study", lambda path, workers: InlineEngine(path), SilentView())
    found = done.findings
    assert done.answered
    assert found.warmups is not None
    assert {run.warmup_fraction for run in found.runs} == {0.1, 0.4}
    for size in found.warmups.sizes:
        losses = {each.warmup_fraction: each.best.quoted_loss for each in size.tried if each.best}
        assert set(losses) == {0.1, 0.4}
        assert losses[0.1] != losses[0.4]
    assert found.warmups.trend is not None
    text = (tmp_path / "study" / "report.md").read_text()
    assert "Warm-ups, each at its own best learning rate" in text
