"""The runs after a search, in whole studies on the simulated device."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from batchlab.analysis.verdict import SlopeFrom
from batchlab.core.experiment import build_experiment
from batchlab.core.schedule import Schedule
from batchlab.core.settings import merge
from batchlab.core.spec import TrainSpec
from batchlab.engines.inline import InlineEngine
from batchlab.simulated.machine import simulation
from batchlab.storage.store import Store
from batchlab.study.progress import SilentView
from batchlab.study.stages.verdict_runs import Left
from batchlab.study.study import StudyResult, run_study
from batchlab.study.task_source import resolve_task

SLOW_PASSES: dict[str, Any] = {
    "batch": {"global_batch_sizes": (16, 32)},
    "model": {"pass_overhead_seconds": 2e-3},
    "sweep": {"learning_rates": (0.8, 1.4, 1.9), "max_extensions": 0},
}
"""Batch 16 is best, and batch 32 takes 29 % less time per sample."""


def study(folder: Path, *sections: dict[str, Any]) -> StudyResult:
    values: dict[str, Any] = dict(resolve_task("simulated"))
    for section in sections:
        values = merge(values, section)
    return run_study(build_experiment(values), folder, lambda path, workers: InlineEngine(path), SilentView())


def trained(folder: Path) -> list[TrainSpec]:
    return [spec for spec, _ in Store.open(folder).records() if isinstance(spec, TrainSpec)]


def test_one_run_of_the_best_cell_at_half_the_budget_measures_the_slope(tmp_path: Path) -> None:
    result = study(tmp_path / "s", SLOW_PASSES)
    slope, surface = result.findings.slope, result.findings.surface
    assert slope is not None
    assert surface is not None
    assert surface.best is not None
    assert surface.best.best is not None
    (half,) = [spec for spec in trained(tmp_path / "s") if spec.token_budget != result.findings.token_budget]
    assert half.token_budget * 2 == result.findings.token_budget
    assert half.schedule == result.findings.experiment.schedule
    assert (half.layout.global_batch_size, half.learning_rate) == (16, surface.best.best.learning_rate)
    assert (slope.source, slope.factor) == (SlopeFrom.RUN, 2.0)

    problem = simulation(result.findings.experiment.model).problem

    def expected(tokens: int) -> float:
        schedule, size = Schedule(half.schedule, half.learning_rate, tokens), 16
        rates = [schedule.mean(step * size, (step + 1) * size) for step in range(tokens // size)]
        return problem.expected_loss(rates, size)

    assert slope.drop.low is not None
    assert slope.drop.high is not None
    assert slope.drop.low <= expected(half.token_budget) - expected(2 * half.token_budget) <= slope.drop.high


def test_no_run_beyond_the_tokens_that_may_be_used(tmp_path: Path) -> None:
    study(tmp_path / "s", SLOW_PASSES, {"budget": {"max_tokens": 10 * 4096}})
    assert len(trained(tmp_path / "s")) == 10
    assert len({spec.token_budget for spec in trained(tmp_path / "s")}) == 1


def test_a_single_batch_size_has_nothing_to_weigh(tmp_path: Path) -> None:
    study(tmp_path / "s", SLOW_PASSES, {"batch": {"global_batch_sizes": (16,)}})
    assert len({spec.token_budget for spec in trained(tmp_path / "s")}) == 1


def test_seeds_that_would_settle_it_are_run_where_enough_runs_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All or none: with one run left nothing is made; with many both cells get the same seeds, and only once."""
    loose = {"sweep": {"tolerance": 0.5}}
    before = study(tmp_path / "few", SLOW_PASSES, loose)
    other = next(cost for cost in before.findings.costs if cost.global_batch_size == 32)
    assert other.more_seeds is not None
    assert Store.open(tmp_path / "few").decisions().further_seeds["tolerance"].seeds == ()

    monkeypatch.setattr("batchlab.study.stages.sweep._left", lambda context, made, on_top: Left(40, math.inf))
    study(tmp_path / "many", SLOW_PASSES, loose)
    decided = Store.open(tmp_path / "many").decisions().further_seeds["tolerance"]
    assert {size for size, *_ in decided.cells} == {16, 32}
    assert decided.seeds == tuple(range(1, 5 + other.more_seeds))
    made = {
        (spec.layout.global_batch_size, spec.learning_rate, spec.schedule.warmup_fraction, spec.seed)
        for spec in trained(tmp_path / "many")
    }
    assert {(*cell, seed) for cell in decided.cells for seed in decided.seeds} <= made
    study(tmp_path / "many", SLOW_PASSES, loose)
    assert len(trained(tmp_path / "many")) == len(trained(tmp_path / "few")) + 2 * other.more_seeds
