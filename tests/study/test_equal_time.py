"""A study at equal time, through the command line, on a device whose speed and losses are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from batchlab.cli.app import run
from batchlab.core.batch import lay_out
from batchlab.core.record import TrainResult
from batchlab.core.schedule import Schedule
from batchlab.core.spec import TrainSpec
from batchlab.simulated.machine import Simulation, simulation
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings

SECONDS = 1.0
SIZES = (4, 16, 64)
RATES = (0.4, 0.8, 1.4, 1.9)
MODEL = {"pass_overhead_seconds": 2e-3, "knee_samples": 1, "samples": 4096, "gradient_noise": 0.3}
"""A step takes hardly longer with 64 samples than with 4."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("equal_time") / "study"
    model = [f"--set=model.{name}={value}" for name, value in MODEL.items()]
    sizes = ",".join(map(str, SIZES))
    rates = ",".join(map(str, RATES))
    axes = ["--batch-sizes", sizes, "--learning-rates", rates, "--set", "sweep.max_extensions=0"]
    assert run(["study", "simulated", "--out", str(folder), "--run-time", f"{SECONDS:g}s", *axes, *model]) == 0
    return folder


@pytest.fixture(scope="module")
def truth() -> Simulation:
    return simulation(MODEL)


def tokens(truth: Simulation, size: int) -> int:
    """Samples of the whole steps that fit into the time."""
    step = truth.machine.step_seconds(lay_out(size, size))
    return int(SECONDS / step + 1e-6) * size


def sweep(folder: Path) -> list[tuple[TrainSpec, TrainResult]]:
    return [
        (spec, record.result)
        for spec, record in Store.open(folder).records()
        if isinstance(spec, TrainSpec) and isinstance(record.result, TrainResult)
    ]


def losses(truth: Simulation, size: int, budget: int, store: Store) -> list[float]:
    """The expected loss at every learning rate of the grid, by formula."""
    step = [
        Schedule(store.experiment.schedule, 1.0, budget, size).mean(k * size, (k + 1) * size)
        for k in range(budget // size)
    ]
    columns = np.array(step)[:, None] * np.array(RATES)[None, :]
    return [float(loss) for loss in truth.problem.expected_losses(columns, size)]


def test_every_run_has_the_samples_of_that_time_and_decays_at_its_end(folder: Path, truth: Simulation) -> None:
    expected = {size: tokens(truth, size) for size in SIZES}
    whole = [(spec, result) for spec, result in sweep(folder) if spec.token_budget == expected[_size(spec)]]
    halves = [spec for spec, _ in sweep(folder) if spec.token_budget != expected[_size(spec)]]
    assert {_size(spec) for spec, _ in whole} == set(SIZES)
    for spec, result in whole:
        assert result.tokens == spec.token_budget
        assert result.val_curve[-1][0] == spec.token_budget
        last = Store.open(folder).rows(_run_id(folder, spec))[-2].learning_rate
        assert last is None or last < 0.15 * spec.learning_rate
    # one run of half the time, for what a higher loss costs
    assert len(halves) == 1
    assert halves[0].token_budget == pytest.approx(expected[_size(halves[0])] / 2, abs=2 * _size(halves[0]))


def test_the_best_at_equal_time_is_recommended_which_is_not_the_best_at_equal_tokens(
    folder: Path, truth: Simulation
) -> None:
    store = Store.open(folder)
    at_time = {size: min(losses(truth, size, tokens(truth, size), store)) for size in SIZES}
    at_tokens = {size: min(losses(truth, size, tokens(truth, 4) // 64 * 64, store)) for size in SIZES}
    best = min(SIZES, key=lambda size: at_time[size])
    assert best != min(SIZES, key=lambda size: at_tokens[size])
    found = read_findings(store)
    assert found.recommended is not None
    assert found.recommended.layout.global_batch_size == best
    assert {item.goal for item in found.recommendations} == {"quality", "fastest", "largest"}


def test_costs_are_shares_of_time(folder: Path, truth: Simulation) -> None:
    found = read_findings(Store.open(folder))
    assert found.slope is not None
    assert found.slope.factor == pytest.approx(2.0, rel=0.05)
    for cost in found.costs:
        if cost.tokens is not None and cost.tokens.value < 1:
            assert cost.time == 1 + cost.tokens.value


def test_the_documents_speak_of_time(folder: Path, truth: Simulation) -> None:
    report = (folder / "report.md").read_text()
    assert "1 s of training" in report
    assert "more time" in report or "less time" in report
    assert "more samples" not in report
    plan = json.loads((folder / "training_plan.json").read_text())["batch_configuration"]
    assert plan["token_budget"] == tokens(truth, plan["global_batch_size"])
    assert plan["steps"] == plan["token_budget"] // plan["tokens_per_step"]


def test_running_it_again_trains_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(sweep(folder))
    model = [f"--set=model.{name}={value}" for name, value in MODEL.items()]
    axes = ["--batch-sizes", "4,16,64", "--learning-rates", "0.4,0.8,1.4,1.9", "--set", "sweep.max_extensions=0"]
    assert run(["study", "simulated", "--out", str(folder), "--run-time", "1s", *axes, *model]) == 0
    assert len(sweep(folder)) == before


@pytest.mark.parametrize(
    "more", [["--token-budget", "4096"], ["--time-budget", "3m"], ["--max-tokens", "1M"], ["--set", "budget.epochs=2"]]
)
def test_another_length_is_refused_before_anything_is_written(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    settings = ["--set", "budget.run_time_seconds=1", "--set", "budget.token_budget=1"]
    asked = ["--run-time", "1s", *more] if more[0] != "--set" else settings
    assert run(["study", "simulated", "--out", str(folder), *asked]) == 2
    assert "--run-time gives every run the same time" in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize(
    "command",
    [["critical", "--run"], ["plan", "--batch-size", "24"], ["plan", "--token-budget", "100k"]],
)
def test_what_needs_equal_tokens_is_refused(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command[0], str(folder), *command[1:]]) == 2
    assert "same time" in capsys.readouterr().err


def test_it_is_no_prior_of_a_study_at_equal_tokens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = [f"--set=model.{name}={value}" for name, value in MODEL.items()]
    asked = ["--search", "adaptive", "--prior", str(folder), "--out", str(folder.parent / "other")]
    assert run(["study", "simulated", *asked, *model]) == 2
    assert "gave every batch size the same time" in capsys.readouterr().err


def _size(spec: TrainSpec) -> int:
    return spec.layout.global_batch_size


def _run_id(folder: Path, wanted: TrainSpec) -> str:
    return next(record.run_id for spec, record in Store.open(folder).records() if spec == wanted)
