from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest
from tests.analysis.sweep.trained import trained

from batchlab.analysis.sweep.learning_rate_fit import (
    FIT_REACH,
    SKEW,
    UNKNOWN_DOUBLINGS,
    fit_learning_rate,
)
from batchlab.analysis.sweep.loss_surface import best_cell, cells_of
from batchlab.analysis.sweep.noise import Noise
from batchlab.analysis.values import Cell, FitProblem, LrFit, NoFit

RATES = (1e-3, 2e-3, 4e-3, 8e-3)


def parabola(best: float, curvature: float = 0.1, floor: float = 2.0) -> Callable[[float], float]:
    return lambda rate: floor + curvature * math.log2(rate / best) ** 2


def cells(losses: Iterable[float | None], rates: Iterable[float] = RATES) -> tuple[Cell, ...]:
    return cells_of(trained(8, rate, loss) for rate, loss in zip(rates, losses, strict=True))[8]


def fit(losses: Iterable[float | None], rates: Iterable[float] = RATES, noise: Noise | None = None) -> LrFit:
    tried = cells(losses, rates)
    return fit_learning_rate(tried, best_cell(tried), noise)


@pytest.mark.parametrize("best", [1.6e-3, 2e-3, 2.7e-3, 3.9e-3, 5.6e-3])
def test_the_fit_finds_the_vertex_of_a_parabola(best: float) -> None:
    found = fit(map(parabola(best, 0.3, 1.7), RATES))
    assert found.valid
    assert found.best_learning_rate == pytest.approx(best)
    assert found.best_loss == pytest.approx(1.7)
    assert found.curvature == pytest.approx(0.3)
    assert 3 <= len(found.learning_rates) <= 4


@pytest.mark.parametrize(
    ("losses", "problem", "finite"),
    [
        ((3, 2, None, None), FitProblem.TOO_FEW, 2),
        ((1, 2, 3, 4), FitProblem.AT_EDGE, 4),
        ((2.0, 2.0, 2.0, 2.0), FitProblem.AT_EDGE, 4),
        ((2.0 + 1e-12, 2.0, 2.0 + 1e-12, 2.0), FitProblem.NOT_CONVEX, 4),
        ((None, 3, 2, None), FitProblem.TOO_FEW, 2),
        ((None, None, None, None), FitProblem.TOO_FEW, 0),
    ],
)
def test_no_vertex_is_claimed_where_none_can_be(
    losses: tuple[float | None, ...], problem: FitProblem, finite: int
) -> None:
    found = fit(losses)
    assert not found.valid
    assert found.no_fit == NoFit(problem, finite)
    assert found.best_learning_rate is None


def test_no_vertex_beyond_its_reach() -> None:
    found = fit((3.0, 2.0, 2.000001), (1e-3, 1e-2, 1.0))
    assert not found.valid
    assert found.no_fit is not None
    assert found.no_fit.problem is FitProblem.TOO_FAR
    assert found.no_fit.doublings is not None
    assert found.no_fit.doublings > FIT_REACH


def test_a_skewed_valley_is_followed_by_five_cells() -> None:
    def skewed(rate: float) -> float:
        u = math.log2(rate / 2.4e-3)
        return 2 + 0.1 * (math.exp(0.9 * u) - 1 - 0.9 * u)

    rates = [1e-3 * 2 ** (i / 2) for i in range(6)]
    found = fit(map(skewed, rates), rates)
    assert found.valid
    assert found.best_learning_rate == pytest.approx(2.4e-3, rel=0.03)


def test_when_unsure_it_recommends_lower_and_the_more_the_less_is_known() -> None:
    valley = parabola(2.3e-3)
    sure, unsure, unknown = (
        fit(map(valley, RATES), noise=noise) for noise in (Noise(1e-4, 2, 1, 3), Noise(0.05, 2, 1, 3), None)
    )
    for found in (sure, unsure, unknown):
        assert found.best_learning_rate == pytest.approx(2.3e-3)
        assert found.doublings is not None
        assert found.best_learning_rate is not None
        assert found.cautious_learning_rate is not None
        lower = math.log2(found.best_learning_rate / found.cautious_learning_rate)
        assert lower == pytest.approx(SKEW * found.doublings**2 / 2)
    assert sure.doublings is not None
    assert unsure.doublings is not None
    assert sure.doublings < 0.01 < unsure.doublings
    assert unknown.doublings == UNKNOWN_DOUBLINGS


@pytest.mark.parametrize(
    ("losses", "rate"),
    [
        ((2.0, 2.1, 2.2, 2.3), 5e-4),  # best at the low end: an doubling below
        ((2.3, 2.2, 2.1, 2.0), 1.6e-2),
        ((2.3, 2.2, 2.1, None), math.sqrt(4e-3 * 8e-3)),  # between the best and a divergence
        ((None, None, None, None), None),
    ],
)
def test_where_nothing_can_be_told_it_names_the_run_that_would_help(
    losses: tuple[float | None, ...], rate: float | None
) -> None:
    found = fit(losses)
    assert not found.valid
    assert found.next_learning_rate == (pytest.approx(rate) if rate else None)
