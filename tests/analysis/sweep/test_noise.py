from __future__ import annotations

import math
import random
import statistics

import pytest

from batchlab.analysis.sweep.noise import (
    Noise,
    mean_interval,
    paired_correlation,
    pooled_noise,
    t_quantile,
    worse,
)
from batchlab.analysis.values import Cell, Run
from batchlab.core.batch import BatchLayout
from batchlab.core.record import Outcome


def cell(*losses: float | None, size: int = 8, first_seed: int = 0) -> Cell:
    layout = BatchLayout(global_batch_size=size, micro_batch_size=size)
    runs = tuple(
        Run(
            run_id=f"{size}-{seed}",
            layout=layout,
            learning_rate=1e-3,
            seed=seed,
            outcome=Outcome.COMPLETED if loss is not None else Outcome.DIVERGED,
            reason="",
            steps=100,
            tokens=800,
            undertrained=False,
            val_loss=loss,
            train_loss=None,
            clipped_fraction=None,
            epochs=0.1,
            seconds=1.0,
            tokens_per_second=None,
            peak_bytes=None,
            pairing="verified",
        )
        for seed, loss in enumerate(losses, first_seed)
    )
    return Cell(size, 1e-3, runs)


def test_pooling_known_values() -> None:
    # squares 2 (df 2) and 2 (df 1) around their own means: √(4/3)
    noise = pooled_noise([cell(1, 2, 3), cell(11, 13), cell(7), cell(None, 4)])
    assert noise == Noise(pytest.approx(math.sqrt(4 / 3)), 3, 2, 5)  # type: ignore[arg-type]
    assert pooled_noise([cell(1), cell(2)]) is None


@pytest.mark.parametrize(
    ("probability", "df", "value"),
    [(0.975, 1, 12.706), (0.975, 4, 2.776), (0.95, 2, 2.920), (0.95, 4, 2.132), (0.975, 10_000, 1.960)],
)
def test_student_t_as_tabulated(probability: float, df: int, value: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(value, abs=6e-4)


def test_interval_is_mean_and_t_sd_over_root_n() -> None:
    interval = mean_interval((1.0, 2.0, 3.0), Noise(0.5, 4, 2, 6))
    assert interval.value == 2.0
    assert interval.high == pytest.approx(2 + 2.7764 * 0.5 / math.sqrt(3), abs=1e-4)
    assert interval.low == pytest.approx(2 - 2.7764 * 0.5 / math.sqrt(3), abs=1e-4)
    alone = mean_interval((1.0,), None)
    assert (alone.low, alone.high, alone.n) == (None, None, 1)


def test_coverage_of_the_interval_and_size_of_the_tests() -> None:
    """1,000 simulated pairs of cells with equal true means, three seeds each, a seed's part shared between cells."""
    dice = random.Random(7)
    covered = worse_paired = worse_unpaired = 0
    for _ in range(1000):
        shared = [dice.gauss(0, 1) for _ in range(3)]
        one, other = (
            cell(*(2 + 0.01 * (0.7 * s + math.sqrt(1 - 0.49) * dice.gauss(0, 1)) for s in shared), size=size)
            for size in (8, 16)
        )
        noise = pooled_noise([one, other])
        interval = mean_interval(one.losses, noise)
        assert interval.low is not None
        assert interval.high is not None
        covered += interval.low <= 2 <= interval.high
        worse_paired += worse(other, one, noise, paired=True)
        worse_unpaired += worse(other, one, noise, paired=False)
    assert 0.92 < covered / 1000 < 0.98
    assert 0.03 < worse_paired / 1000 < 0.07  # the level of the test
    assert worse_unpaired / 1000 < 0.05  # shared seeds make the unpaired test cautious


def test_pooled_sd_finds_the_known_sd() -> None:
    dice = random.Random(3)
    found = [pooled_noise([cell(*(dice.gauss(5, 0.02) for _ in range(3))) for _ in range(2)]) for _ in range(500)]
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
    best, other = cell(1.0, 1.2, 1.4), cell(1.011, 1.209, 1.41)
    noise = pooled_noise([best, other])
    assert worse(other, best, noise, paired=True)
    assert not worse(other, best, noise, paired=False)


def test_a_single_run_is_compared_by_the_pooled_sd() -> None:
    noise = Noise(0.01, 4, 2, 6)
    limit = 2.1318 * 0.01 * math.sqrt(1 + 1 / 3)
    best = cell(1.0, 1.0, 1.0)
    assert not worse(cell(1.0 + 0.99 * limit), best, noise, paired=True)
    assert worse(cell(1.0 + 1.01 * limit), best, noise, paired=True)
    assert worse(cell(1.0 + 1e-9), best, None, paired=True)
