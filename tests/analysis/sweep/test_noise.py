from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from statistics import stdev

import pytest
from scipy.stats import ttest_ind
from tests.analysis.sweep.trained import trained

from batchlab.analysis.sweep.noise import (
    UNKNOWN_SPREAD,
    Noise,
    difference,
    difference_interval,
    mean_interval,
    paired_correlation,
    pooled_noise,
    t_quantile,
    worse,
)
from batchlab.analysis.values import Cell, Comparing, Interval


def cell(*losses: float | None, size: int = 8, first_seed: int = 0) -> Cell:
    runs = tuple(trained(size, 1e-3, loss, seed, tokens=800) for seed, loss in enumerate(losses, first_seed))
    return Cell(size, 1e-3, runs)


def test_pooling_known_values() -> None:
    # squares 2 (df 2) and 2 (df 1) around their own means: √(4/3)
    noise = pooled_noise([cell(1, 2, 3), cell(11, 13, size=16), cell(7, size=32), cell(None, 4, size=64)])
    assert noise == Noise(pytest.approx(math.sqrt(4 / 3)), 3, 2, 5)  # type: ignore[arg-type]
    assert pooled_noise([cell(1), cell(2)]) is None


@pytest.mark.parametrize(
    ("probability", "df", "value"),
    [(0.975, 1, 12.706), (0.975, 4, 2.776), (0.95, 2, 2.920), (0.95, 4, 2.132), (0.975, 10_000, 1.960)],
)
def test_student_t_as_tabulated(probability: float, df: int, value: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(value, abs=6e-4)


def test_interval_is_mean_and_t_sd_over_root_n() -> None:
    interval = mean_interval(cell(1.0, 2.0, 3.0), Noise(0.5, 4, 2, 6))
    assert interval.value == 2.0
    assert interval.high == pytest.approx(2 + 2.7764 * 0.5 / math.sqrt(3), abs=1e-4)
    assert interval.low == pytest.approx(2 - 2.7764 * 0.5 / math.sqrt(3), abs=1e-4)
    alone = mean_interval(cell(1.0), None)
    assert (alone.low, alone.high, alone.n) == (None, None, 1)


def pair(dice: random.Random, seeds: int) -> list[Cell]:
    """Two cells with equal true means, half of whose variance is the seed's and so the same in both."""
    shared = [dice.gauss(0, 1) for _ in range(seeds)]
    return [
        cell(*(2 + 0.01 * (0.7 * s + math.sqrt(1 - 0.49) * dice.gauss(0, 1)) for s in shared), size=size)
        for size in (8, 16)
    ]


@pytest.mark.parametrize("seeds", [3, 4, 5])
def test_coverage_of_the_interval_and_size_of_the_tests(seeds: int) -> None:
    """1,000 simulated pairs of cells; in pairs from four seeds on."""
    dice = random.Random(7)
    covered = worse_paired = worse_unpaired = held = 0
    for _ in range(1000):
        one, other = pair(dice, seeds)
        noise = pooled_noise([one, other])
        assert noise is not None
        interval, apart = mean_interval(one, noise), difference(other, one, noise, paired=True)
        covered += holds(interval, 2)
        held += holds(difference_interval(apart), 0)
        assert apart.by is (Comparing.PAIRED if seeds >= 4 else apart.by)
        worse_paired += worse(other, one, noise, paired=True)
        worse_unpaired += worse(other, one, noise, paired=False)
    assert 0.92 < covered / 1000 < 0.98
    assert held / 1000 > 0.93
    assert worse_unpaired / 1000 < 0.06  # shared seeds make the unpaired test cautious
    assert (0.03 if seeds >= 4 else 0) < worse_paired / 1000 < 0.07  # the level of the test


def holds(interval: Interval, value: float) -> bool:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low <= value <= interval.high


def test_a_cell_with_a_spread_of_its_own_is_compared_by_welch() -> None:
    """The published example: variances 0.0035² and 0.019² pooled said 0.0132 of both."""
    quiet = cell(2.0, 2.0035, 1.9965, 2.003, 1.997, size=8)
    loud = cell(2.02, 1.985, 2.03, 1.99, 2.01, size=16)
    noise = pooled_noise([quiet, loud])
    assert noise is not None
    found = difference(loud, quiet, noise, paired=False)
    expected = ttest_ind(loud.losses, quiet.losses, equal_var=False)
    assert found.by is Comparing.WELCH
    assert found.value / found.error == pytest.approx(expected.statistic)
    assert found.df == pytest.approx(expected.df)
    assert difference_interval(found).low == pytest.approx(expected.confidence_interval().low)
    narrow, wide = mean_interval(quiet, noise), mean_interval(loud, noise)
    assert (narrow.high or 0) - narrow.value == pytest.approx(2.7764 * stdev(quiet.losses) / math.sqrt(5), rel=1e-4)
    assert (wide.high or 0) - wide.value > 4 * ((narrow.high or 0) - narrow.value)


def test_equal_spreads_are_seldom_taken_for_different() -> None:
    dice = random.Random(5)
    made = [[cell(*(dice.gauss(2, 0.01) for _ in range(5)), size=size) for size in (8, 16)] for _ in range(500)]
    welch = 0
    for one, other in made:
        noise = pooled_noise([one, other])
        assert noise is not None
        welch += difference(one, other, noise, paired=False).by is Comparing.WELCH
    assert 0.02 < welch / 500 < 0.09


def test_pooled_sd_finds_the_known_sd() -> None:
    dice = random.Random(3)
    found = [
        pooled_noise([cell(*(dice.gauss(5, 0.02) for _ in range(3)), size=size) for size in (8, 16)])
        for _ in range(500)
    ]
    mean_variance = statistics.mean(noise.sd**2 for noise in found if noise)
    assert math.sqrt(mean_variance) == pytest.approx(0.02, rel=0.05)


def test_correlation_over_shared_seeds() -> None:
    assert paired_correlation(cell(1, 2, 3), cell(2, 4, 6)) == pytest.approx(1)
    assert paired_correlation(cell(1, 2, 3), cell(3, 2, 1)) == pytest.approx(-1)
    assert paired_correlation(cell(1, 2, 3, None), cell(9, 1, 2, 3, first_seed=-1)) == pytest.approx(1)
    assert paired_correlation(cell(1, 2), cell(1, 2)) is None
    assert paired_correlation(cell(1, 1, 1), cell(1, 2, 3)) is None


def test_pairing_sees_what_seeds_hide() -> None:
    """Losses differ by .01 in every seed, while seeds move both by .2."""
    best, other = cell(1.0, 1.2, 1.4, 1.6), cell(1.011, 1.209, 1.41, 1.61, size=16)
    noise = pooled_noise([best, other])
    assert worse(other, best, noise, paired=True)
    assert not worse(other, best, noise, paired=False)
    assert not worse(cell(*other.losses[:3], size=16), cell(*best.losses[:3]), noise, paired=True)  # too few pairs


def test_a_single_run_is_compared_by_the_pooled_sd() -> None:
    noise = Noise(0.01, 4, 2, 6)
    limit = 2.1318 * 0.01 * math.sqrt(1 + 1 / 3)
    best = cell(1.0, 1.0, 1.0)
    assert not worse(cell(1.0 + 0.99 * limit), best, noise, paired=True)
    assert worse(cell(1.0 + 1.01 * limit), best, noise, paired=True)
    assert worse(cell(1.0 + 1e-9), best, None, paired=True)


def at(size: int, learning_rate: float, *losses: float) -> Cell:
    return replace(cell(*losses, size=size), learning_rate=learning_rate)


def half(interval: Interval) -> float:
    assert interval.high is not None
    return interval.high - interval.value


def test_a_single_seed_has_a_wider_interval_and_more_so_where_sgd_is_noisier() -> None:
    """Noise grows with learning rate ÷ batch size; a cell that should be quieter is not trusted to be."""
    noise = pooled_noise([at(16, 2e-3, 1.0, 1.1, 1.2), at(32, 4e-3, 1.0, 1.1, 1.2)])
    assert noise is not None
    alike, noisier, quieter = (mean_interval(at(*where, 1.0), noise) for where in ((8, 1e-3), (4, 2e-3), (64, 2e-3)))
    assert half(alike) > t_quantile(0.975, noise.df) * noise.sd
    assert half(noisier) == pytest.approx(2 * half(alike))  # 4 × the ratio
    assert half(quieter) == pytest.approx(half(alike))


def test_coverage_at_a_single_seed_whose_spread_is_unknown() -> None:
    """2,000 cells, each with a spread of its own around that of two repeated cells."""
    dice, covered = random.Random(3), 0
    for _ in range(2000):
        noise = pooled_noise([at(size, 1e-3, *(dice.gauss(2, 0.01) for _ in range(5))) for size in (8, 16)])
        own = 0.01 * math.exp(dice.gauss(0, UNKNOWN_SPREAD))
        covered += holds(mean_interval(at(32, 1e-3, dice.gauss(2, own)), noise), 2)
    assert 0.93 < covered / 2000 < 0.97
