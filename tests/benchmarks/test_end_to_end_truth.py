"""The benchmark of the answer: its truths are the studies' own, and twelve of its studies are judged."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from batchlab.core.experiment import ScheduleConfig
from batchlab.simulated.machine import Machine, Simulation
from batchlab.simulated.problem import NoisyQuadratic

FOLDER = Path(__file__).parents[2] / "benchmarks" / "end_to_end_truth"
NAMES = ("truth", "families", "judge", "table", "run")


@pytest.fixture(scope="module")
def benchmark() -> Iterator[SimpleNamespace]:
    """The benchmark's modules, which import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        for name in NAMES:
            patch.delitem(sys.modules, name, raising=False)
        found: dict[str, ModuleType] = {name: import_module(name) for name in NAMES}
        for name in NAMES:
            patch.delitem(sys.modules, name)
        yield SimpleNamespace(**found)


PROBLEM = NoisyQuadratic(dimensions=32, spectrum=1.0, source=1.4, samples=2048, gradient_noise=4.0)


def test_extra_tokens_are_those_that_the_best_cell_does_without(benchmark: SimpleNamespace) -> None:
    truth = benchmark.truth.Truth(Simulation(PROBLEM))
    best = benchmark.truth.Cell(16, 0.4, truth.loss(16, 0.4, 1600))
    assert truth.extra_tokens(best.loss, best, 1600) == 0
    assert truth.extra_tokens(truth.loss(16, 0.4, 1280), best, 1600) == pytest.approx(0.25, abs=1e-9)
    assert truth.extra_tokens(truth.loss(16, 0.4, 2400), best, 1600) == pytest.approx(-1 / 3, abs=1e-9)
    assert truth.extra_tokens(0.0, best, 1600) == -1
    assert truth.extra_tokens(PROBLEM.start_loss + 2, best, 1600) == np.inf


def test_a_learning_rate_that_fails_or_diverges_has_no_loss(benchmark: SimpleNamespace) -> None:
    truth = benchmark.truth.Truth(Simulation(PROBLEM, Machine(fails_above=0.5)))
    schedule = ScheduleConfig()
    highest = benchmark.truth.learning_rates(schedule, 16, [1.0], 1600).max()
    fine, fails = truth.losses(16, [0.499 / highest, 0.501 / highest], 1600)
    assert np.isfinite(fine)
    assert fails == np.inf
    assert benchmark.truth.Truth(Simulation(PROBLEM)).loss(16, 3.0, 1600) == np.inf


def test_the_best_learning_rate_is_where_both_neighbours_are_worse(benchmark: SimpleNamespace) -> None:
    truth = benchmark.truth.Truth(Simulation(PROBLEM))
    for near in (0.003, 0.3):
        best = truth.best_rate(16, near, 1600)
        assert best.loss < min(truth.loss(16, best.rate * factor, 1600) for factor in (0.8, 1.25))


def test_a_share_has_wilsons_interval(benchmark: SimpleNamespace) -> None:
    share = benchmark.table.share([True] * 190 + [False] * 10 + [None])
    assert (share.k, share.n) == (190, 200)
    assert share.interval == pytest.approx((91.04, 97.26), abs=0.01)  # Newcombe 1998, method 3


def test_a_draw_is_repeatable_and_of_its_family(benchmark: SimpleNamespace) -> None:
    families = benchmark.families
    assert families.draw("small_budget", 3) == families.draw("small_budget", 3)
    ask = families.draw("failing", 1)
    assert ask.rates[-1] > ask.simulation.machine.fails_above > 0
    ask = families.draw("edge", 1)
    best = benchmark.truth.Truth(ask.simulation).best(ask.sizes, families.SCANNED, ask.budget)
    assert best.size in (ask.sizes[0], ask.sizes[-1])


def test_an_interrupted_run_goes_on(benchmark: SimpleNamespace, tmp_path: Path) -> None:
    origin = benchmark.run.origin_of(tmp_path, final=False)
    benchmark.run.study_all(tmp_path, origin, ["small_budget"], 1, None)
    before = benchmark.run.read(tmp_path)
    with (tmp_path / "studies.jsonl").open("a") as lines:
        lines.write('{"family": "small_bud')
    benchmark.run.study_all(tmp_path, origin, ["small_budget"], 1, None)
    assert benchmark.run.read(tmp_path) == before
    with pytest.raises(SystemExit, match="development seeds"):
        benchmark.run.origin_of(tmp_path, final=True)
    page = "\n".join(benchmark.run.page(origin, before))
    assert "not judged" in page
    assert "1 distinct truths" in page


def test_the_losses_of_a_study_scatter_around_the_truth(benchmark: SimpleNamespace) -> None:
    """Every run that has an expected loss ends within 4.5 of its standard deviations, and the others diverge."""
    ask = benchmark.families.draw("small_budget", 4)
    found = benchmark.judge.findings_of(benchmark.judge.settings(ask, "grid"), None)
    truth = benchmark.truth.Truth(ask.simulation)
    assert len(found.runs) > 20
    for run in found.runs:
        cell = run.global_batch_size, run.learning_rate, ask.budget
        expected = truth.loss(*cell)
        assert (run.val_loss is not None) == np.isfinite(expected)
        if run.val_loss is not None:
            assert abs(run.val_loss - expected) < 4.5 * truth.deviation(*cell)


@pytest.mark.slow
def test_twelve_studies_are_as_good_as_they_say(benchmark: SimpleNamespace) -> None:
    """Of families that take a second each; seeds of development, so that nothing final is looked at here."""
    table = benchmark.table
    studies = [
        benchmark.judge.judge(family, 1000 + place, search).as_json()
        for family in ("power_law", "sharp", "edge", "small_budget")
        for place, search in enumerate(("grid", "adaptive", "adaptive"))
    ]
    assert all(study["answered"] for study in studies)
    assert table.capacity_errors(studies).k == 0
    assert table.share(map(table.quoted_covers, studies)).k >= 10
    assert table.share(study["best_tried_tied"] for study in studies).k >= 10
    assert table.p90(table.costs(studies, table.QUALITY, "loss_percent")) < 1
