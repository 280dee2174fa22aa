from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.sweep.trained import trained

from batchlab.analysis.sweep.loss_surface import best_cell, cells_of, edge_of, surface_finding
from batchlab.analysis.values import AllUndertrained, NoFiniteLoss, Run, SurfaceFinding
from batchlab.core.record import Outcome
from batchlab.search.grid import GridSearch
from batchlab.search.trial import TrialOutcome

RATES = (1e-3, 2e-3, 4e-3, 8e-3)


def found(runs: Iterable[Run]) -> SurfaceFinding:
    runs = list(runs)
    surface = surface_finding(runs, sorted({r.global_batch_size for r in runs}), tokens_at=lambda size: 6400)
    assert surface is not None
    return surface


def parabola(best: float, curvature: float = 0.1, floor: float = 2.0) -> Callable[[float], float]:
    return lambda rate: floor + curvature * math.log2(rate / best) ** 2


def test_rows_are_judged_at_their_own_best_learning_rate() -> None:
    surface = found(
        trained(size, rate, parabola(size * 2e-4, floor=2 + 0.01 * abs(size - 10))(rate))
        for size in (5, 10, 20)
        for rate in RATES
    )
    assert [row.best.learning_rate for row in surface.rows if row.best] == [1e-3, 2e-3, 4e-3]
    assert surface.best is not None
    assert surface.best.global_batch_size == 10


@pytest.mark.parametrize(
    ("losses", "edge"),
    [
        ((3, 2, 3, 4), ""),
        ((2, 3, 4, 5), "low"),
        ((5, 4, 3, 2), "high"),
        ((4, 3, 2, None), "high"),
        ((None, 2, 3, 4), "low"),
        ((None, None, None, None), ""),
    ],
)
def test_edges(losses: tuple[float | None, ...], edge: str) -> None:
    (row,) = found(trained(8, rate, loss) for rate, loss in zip(RATES, losses, strict=True)).rows
    assert row.edge == edge
    assert (row.best is None) == all(loss is None for loss in losses)


def test_ties_go_to_the_lower_learning_rate() -> None:
    cells = cells_of([trained(8, 2e-3, 2.0), trained(8, 1e-3, 2.0), trained(8, 4e-3, 3.0)])[8]
    best = best_cell(cells)
    assert best is not None
    assert best.learning_rate == 1e-3
    assert edge_of(cells, best) == "low"


def test_cells_are_chosen_on_the_seeds_they_share() -> None:
    """2e-3 is better at seed 0; its other seeds were unlucky, which 4e-3 never had to face."""
    runs = [trained(8, 1e-3, 2.5), trained(8, 4e-3, 2.01)]
    runs += [trained(8, 2e-3, loss, seed) for seed, loss in enumerate((2.00, 2.05, 2.06))]
    (row,) = found(runs).rows
    assert row.best is not None
    assert row.best.learning_rate == 2e-3
    assert row.val_loss is not None
    assert row.val_loss.value == pytest.approx(2.11 / 3 + 4 / 3)
    assert row.val_loss.n == 3


def test_one_seed_has_no_interval_and_no_company() -> None:
    surface = found(trained(size, rate, 2 + abs(size - 8) + rate) for size in (4, 8) for rate in RATES)
    assert surface.noise_sd is None
    assert not surface.resolved
    assert surface.best is not None
    assert surface.best.val_loss is not None
    assert (surface.best.val_loss.low, surface.best.val_loss.n) == (None, 1)
    assert [row.global_batch_size for row in surface.tied] == [8]


def test_tied_set_by_pooled_noise() -> None:
    """Pooled sd .01 with 4 degrees of freedom: a single run is worse beyond 2.13·.01·√(4/3) = .0246."""
    runs = [trained(16, 2e-3, 2.0 + d, s) for s, d in enumerate((-0.01, 0.0, 0.01))]
    runs += [trained(32, 2e-3, 2.1 + d, s) for s, d in enumerate((-0.01, 0.0, 0.01))]
    runs += [trained(4, 2e-3, 2.024), trained(8, 2e-3, 2.026)]
    surface = found(runs)
    assert surface.noise_sd == pytest.approx(0.01)
    assert (surface.noise_df, surface.noise_seeds, surface.resolved) == (4, 6, True)
    assert [row.global_batch_size for row in surface.tied] == [4, 16]
    assert surface.correlation == pytest.approx(1.0)


@pytest.mark.parametrize(("pairing", "good"), [("verified", [16]), ("declared", [16, 32]), ("none", [16, 32])])
def test_pairing_is_used_only_where_it_is_verified(pairing: str, good: list[int]) -> None:
    runs = [trained(16, 2e-3, 2.0 + d, s, pairing=pairing) for s, d in enumerate((-0.1, 0.0, 0.1, 0.2))]
    runs += [trained(32, 2e-3, 2.01 + d, s, pairing=pairing) for s, d in enumerate((-0.101, 0.0, 0.101, 0.2))]
    surface = found(runs)
    assert surface.pairing == pairing
    assert [row.global_batch_size for row in surface.tied] == good


def test_undertrained_sizes_are_never_judged() -> None:
    runs = [replace(trained(64, rate, 1.0), undertrained=True) for rate in RATES]
    runs += [trained(8, rate, parabola(2e-3)(rate)) for rate in RATES]
    surface = found(runs)
    assert surface.best is not None
    assert surface.best.global_batch_size == 8
    assert [row.undertrained for row in surface.rows] == [False, True]
    assert [row.tied for row in surface.rows] == [True, False]
    only = found(r for r in runs if r.undertrained)
    assert only.best is None
    assert only.no_best == AllUndertrained(sizes=1)


def test_everything_diverged_cannot_tell() -> None:
    surface = found(trained(size, rate, None) for size in (4, 8) for rate in RATES)
    assert surface.best is None
    assert surface.tied == ()
    assert surface.no_best == NoFiniteLoss(runs=8, outcomes=(Outcome.DIVERGED,))


def test_sizes_without_runs_have_no_row() -> None:
    surface = surface_finding([trained(8, 1e-3, 2.0)], (4, 8, 16))
    assert surface is not None
    assert [row.global_batch_size for row in surface.rows] == [8]
    assert surface_finding([], (4, 8)) is None


def simulate(dice: random.Random, sd: float) -> tuple[list[Run], Callable[[int, float], float]]:
    """A study by GridSearch over a known surface; a third of the noise's variance belongs to the seed."""

    def truth(size: int, rate: float) -> float:
        best = 2.6e-3 * (size / 16) ** 0.5
        return 2.0 + 0.02 * math.log2(size / 16) ** 2 + 0.05 * math.log2(rate / best) ** 2

    seeds = [dice.gauss(0, 1) for _ in range(3)]
    search = GridSearch((4, 8, 16, 32, 64), RATES)
    runs = []
    while trials := search.ask():
        outcomes = []
        for trial in trials:
            noise = math.sqrt(1 / 3) * seeds[trial.seed] + math.sqrt(2 / 3) * dice.gauss(0, 1)
            loss = truth(trial.global_batch_size, trial.learning_rate) + sd * noise
            runs.append(trained(trial.global_batch_size, trial.learning_rate, loss, trial.seed))
            outcomes.append(TrialOutcome(loss))
        search.tell(trials, outcomes)
    return runs, truth


def test_coverage_over_simulated_studies() -> None:
    """400 whole studies: the best row's interval holds its cell's true loss, and the true best is seldom excluded."""
    dice = random.Random(11)
    covered = best_kept = 0
    for _ in range(400):
        runs, truth = simulate(dice, 0.01)
        surface = found(runs)
        best = surface.best
        assert best is not None
        assert best.best is not None
        assert best.val_loss is not None
        assert best.val_loss.low is not None
        assert best.val_loss.high is not None
        true = truth(best.global_batch_size, best.best.learning_rate)
        covered += best.val_loss.low <= true <= best.val_loss.high
        best_kept += 16 in {row.global_batch_size for row in surface.tied}
    assert 0.90 <= covered / 400 <= 0.98
    assert best_kept / 400 >= 0.90


def test_the_public_sweep_is_not_given_a_winner() -> None:
    """One seed, one learning rate, warm-ups of a few steps: the table that called batch 8 optimal."""
    table = Path(__file__).parents[3] / ".." / "shared" / "data" / "sweep_tables" / "tinystories_report.csv"
    if not table.exists():
        pytest.skip("the public sweep's table is not on this machine")
    with table.open() as file:
        lines = list(csv.DictReader(file))
    runs = []
    for line in lines:
        size = int(line["batch_size"])
        loss = next((float(v) for k, v in line.items() if "final_val" in k and v not in ("", "N/A")), None)
        made = trained(size, 3e-4, loss)
        runs.append(made if loss is not None else replace(made, outcome=Outcome.OUT_OF_MEMORY))
    surface = found(runs)
    assert surface.best is not None
    assert surface.best.global_batch_size == 8
    assert surface.noise_sd is None
    assert not surface.resolved
    assert all(len(row.cells) == 1 for row in surface.rows)
    assert surface.rows[-1].best is None


def noisy(size: int, rate: float, losses: dict[int, float]) -> list[Run]:
    return [trained(size, rate, loss, seed) for seed, loss in losses.items()]


def test_what_is_quoted_comes_from_seeds_that_chose_nothing() -> None:
    runs = [
        *noisy(8, 1e-3, {0: 1.90, 1: 2.00, 3: 2.02, 4: 2.04}),  # seed 0 was lucky
        *noisy(16, 1e-3, {0: 1.95, 1: 2.08}),
        *noisy(8, 2e-3, {0: 2.01}),
    ]
    surface = surface_finding(runs, (8, 16), confirmation_seeds=range(3, 5))
    assert surface is not None
    assert surface.best is not None
    assert surface.best.val_loss is not None
    assert surface.best.val_loss.value == pytest.approx(2.03)
    assert surface.best.val_loss.n == surface.confirmation_seeds == 2
    without = surface_finding(runs, (8, 16))
    assert without is not None
    assert without.best is not None
    assert without.best.val_loss is not None
    assert without.confirmation_seeds == 0
    assert without.best.val_loss.value == pytest.approx(1.99)


def test_confirmation_seeds_choose_no_winner() -> None:
    runs = [*noisy(8, 1e-3, {0: 2.00, 1: 2.01, 2: 2.50}), *noisy(16, 1e-3, {0: 2.02, 1: 2.03, 2: 1.50})]
    surface = surface_finding(runs, (8, 16), confirmation_seeds=(2,))
    assert surface is not None
    assert surface.best is not None
    assert surface.best.global_batch_size == 8


def test_the_answer_is_a_set_of_cells() -> None:
    runs = [
        *noisy(8, 1e-3, {0: 2.000, 1: 2.010, 2: 1.990}),
        *noisy(8, 2e-3, {0: 2.012}),
        *noisy(8, 4e-3, {0: 2.300}),
        *noisy(16, 2e-3, {0: 2.011, 1: 2.005, 2: 1.985}),
        *noisy(16, 4e-3, {0: 2.200}),
    ]
    surface = found(runs)
    assert {(cell.global_batch_size, cell.learning_rate) for cell in surface.tied_cells} == {
        (8, 1e-3),
        (8, 2e-3),
        (16, 2e-3),
    }
    assert [row.global_batch_size for row in surface.tied] == [8, 16]
    assert surface.paired_seeds == 0


@pytest.mark.parametrize(("pairing", "seeds"), [("verified", 4), ("declared", 0), ("none", 0)])
def test_how_sizes_were_compared_is_known(pairing: str, seeds: int) -> None:
    runs = [
        trained(size, 1e-3, 2 + size / 100 + seed / 50, seed, pairing=pairing) for size in (8, 16) for seed in range(4)
    ]
    surface = found(runs)
    assert surface.paired_seeds == seeds


def test_the_held_out_samples_noise_is_apart_from_the_seeds() -> None:
    runs = [replace(trained(8, 1e-3, 2.0 + seed / 1000, seed), val_error=0.02) for seed in range(3)]
    surface = found(runs)
    assert surface.evaluation_sd == pytest.approx(0.02)
    assert surface.noise_sd == pytest.approx(0.001)


def test_identical_losses_everywhere_are_all_tied() -> None:
    runs = [trained(size, rate, 2.0, seed) for size in (8, 16, 32) for rate in RATES for seed in range(2)]
    surface = found(runs)
    assert surface.noise_sd == 0.0
    assert len(surface.tied_cells) == 12
    assert [row.global_batch_size for row in surface.tied] == [8, 16, 32]
