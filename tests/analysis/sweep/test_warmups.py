"""Warm-ups whose best ones are known, at every batch size."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.analysis.sweep.trained import trained

from batchlab.analysis.sweep.warmups import WarmupFinding, best_warmups, warmup_finding
from batchlab.analysis.values import Comparing, Run

SIZES, WARMUPS, RATES = (8, 16, 32), (0.01, 0.04, 0.16), (1e-3, 2e-3, 4e-3)
LONGER = {8: 0.01, 16: 0.04, 32: 0.16}
SAME = dict.fromkeys(SIZES, 0.04)
CONFIRMING = (3, 4)
STEEP = 0.01
"""Nats per squared doubling of the warm-up."""


def runs(best: Mapping[int, float], seeds: Sequence[int] = range(5), noise: float = 0.0) -> list[Run]:
    """Every cell with every seed. At the warm-up 0.16 the best learning rate is twice as high."""
    found = []
    for size in SIZES:
        for warmup in WARMUPS:
            for rate in RATES:
                for seed in seeds:
                    at = 4e-3 if warmup == 0.16 else 2e-3
                    loss = 2 + STEEP * math.log2(warmup / best[size]) ** 2 + 0.1 * math.log2(rate / at) ** 2
                    loss += random.Random(f"{size} {warmup} {rate} {seed}").gauss(0, noise) if noise else 0.0
                    found.append(replace(trained(size, rate, loss, seed), warmup_fraction=warmup))
    return found


def finding(best: Mapping[int, float], **more: object) -> WarmupFinding:
    found = warmup_finding(runs(best, **more), CONFIRMING, WARMUPS)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_each_size_takes_its_best_warmup_at_the_learning_rate_that_is_best_there() -> None:
    assert best_warmups(runs(LONGER), CONFIRMING) == LONGER
    found = finding(LONGER, noise=1e-4)
    assert {size.global_batch_size: size.taken for size in found.sizes} == LONGER
    rates = [each.best.learning_rate for each in found.sizes[0].tried if each.best]
    assert rates == [2e-3, 2e-3, 4e-3]
    assert all(size.told_apart for size in found.sizes)


def test_what_the_others_cost_is_paired_and_encloses_the_truth() -> None:
    at = finding(LONGER, noise=1e-3).at(32)
    assert at is not None
    short, middle, taken = at.tried
    assert taken.cost is None
    for tried, doublings in ((short, 4), (middle, 2)):
        assert tried.cost is not None
        assert (tried.by, tried.cost.n) == (Comparing.PAIRED, 4)  # of five seeds, the one that chose does not count
        assert tried.cost.low is not None
        assert tried.cost.high is not None
        assert tried.cost.low <= STEEP * doublings**2 <= tried.cost.high


def test_whether_larger_batches_want_a_longer_one_is_a_number_with_an_interval() -> None:
    found = finding(LONGER, noise=1e-3).trend
    assert found is not None
    assert (found.smallest, found.largest, found.short, found.long) == (8, 32, 0.01, 0.16)
    # from 0.01 to 0.16 costs 16 · STEEP at batch 8 and gains as much at batch 32
    assert found.gain.low is not None
    assert found.gain.high is not None
    assert 0 < found.gain.low <= 32 * STEEP <= found.gain.high
    same = finding(SAME, noise=1e-3).trend
    assert same is not None
    assert same.gain.low is not None
    assert same.gain.high is not None
    assert same.gain.low < 0 < same.gain.high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held = 0
    for draw in range(60):
        shuffled = [
            replace(
                run,
                val_loss=(run.val_loss or 0.0)
                + random.Random(f"{draw} {run.run_id} {run.warmup_fraction}").gauss(0, 0.02),
            )
            for run in runs(SAME)
        ]
        found = warmup_finding(shuffled, CONFIRMING, WARMUPS)
        assert found is not None
        assert found.trend is not None
        assert found.trend.gain.low is not None
        assert found.trend.gain.high is not None
        held += found.trend.gain.low <= 0 <= found.trend.gain.high
    assert held >= 52


def test_one_seed_says_nothing_about_noise() -> None:
    found = finding(LONGER, seeds=(0,))
    assert {size.global_batch_size: size.taken for size in found.sizes} == LONGER
    assert found.trend is None
    assert not any(size.told_apart for size in found.sizes)


def test_one_warmup_is_no_axis() -> None:
    assert warmup_finding([run for run in runs(SAME) if run.warmup_fraction == 0.04], CONFIRMING, WARMUPS) is None


def test_an_undertrained_warmup_is_taken_only_where_all_are() -> None:
    few = [replace(run, undertrained=run.warmup_fraction == 0.01) for run in runs(LONGER)]
    assert best_warmups(few, CONFIRMING)[8] == 0.04
    everywhere = [replace(run, undertrained=True) for run in runs(LONGER)]
    assert best_warmups(everywhere, CONFIRMING) == LONGER


def test_confirmation_seeds_choose_nothing() -> None:
    lucky = [
        replace(run, val_loss=0.1) if run.seed in CONFIRMING and run.warmup_fraction == 0.16 else run
        for run in runs(dict.fromkeys(SIZES, 0.01))
    ]
    assert best_warmups(lucky, CONFIRMING) == dict.fromkeys(SIZES, 0.01)


def test_a_size_without_a_loss_has_the_shortest() -> None:
    none = [replace(run, val_loss=None) if run.global_batch_size == 8 else run for run in runs(LONGER)]
    assert best_warmups(none, CONFIRMING)[8] == 0.01
    found = warmup_finding(none, CONFIRMING, WARMUPS)
    assert found is not None
    assert found.at(8) is not None
    assert found.trend is None or found.trend.smallest == 16


@pytest.mark.parametrize("order", range(3))
def test_the_order_of_runs_does_not_matter(order: int) -> None:
    shuffled = runs(LONGER, noise=1e-3)
    random.Random(order).shuffle(shuffled)
    assert warmup_finding(shuffled, CONFIRMING, WARMUPS) == finding(LONGER, noise=1e-3)
