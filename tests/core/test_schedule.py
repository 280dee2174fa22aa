"""The learning rate over tokens: the mean over a step is the integral, so every batch size spends the same area."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.core.experiment import ScheduleConfig
from batchlab.core.schedule import Schedule

configs = st.builds(
    ScheduleConfig,
    kind=st.sampled_from(["cosine", "constant", "wsd"]),
    warmup_fraction=st.sampled_from([0.0, 0.01, 0.1, 0.37, 0.9]),
    decay_fraction=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    final_fraction=st.sampled_from([0.0, 0.1, 1.0]),
)


@settings(max_examples=60, deadline=None)
@given(config=configs, ends=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted))
def test_mean_is_the_numeric_integral(config: ScheduleConfig, ends: list[float]) -> None:
    total = 10_000.0
    start, stop = ends[0] * total, ends[1] * total + 1e-3 * total
    stop = min(stop, total)
    if stop - start < 1:
        return
    schedule = Schedule(config, 3e-3, total)
    points = np.linspace(start, stop, 4001)
    middles = (points[:-1] + points[1:]) / 2
    numeric = float(np.mean([schedule.at(float(token)) for token in middles]))
    assert schedule.mean(start, stop) == pytest.approx(numeric, rel=2e-4, abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(config=configs)
def test_every_batch_size_spends_the_same_area(config: ScheduleConfig) -> None:
    total = 4096 * 64
    schedule = Schedule(config, 1e-3, total)
    areas = []
    for batch in (64, 256, 1024, 4096, total):
        rates = [schedule.mean(start, start + batch) for start in range(0, total, batch)]
        assert min(rates) >= 0
        assert max(rates) <= 1e-3 * (1 + 1e-9)
        areas.append(sum(rates) * batch)
    assert areas == pytest.approx([areas[0]] * len(areas), rel=1e-9)


def test_cosine_by_hand() -> None:
    schedule = Schedule(ScheduleConfig(kind="cosine", warmup_fraction=0.1, final_fraction=0.1), 1.0, 1000)
    assert schedule.at(0) == 0.0
    assert schedule.at(50) == 0.5
    assert schedule.at(100) == 1.0
    assert schedule.at(550) == pytest.approx(0.55)
    assert schedule.at(1000) == schedule.at(2000) == pytest.approx(0.1)
    assert schedule.mean(0, 100) == pytest.approx(0.5)
    assert schedule.mean(100, 1000) == pytest.approx(0.55)
    assert schedule.mean(0, 1000) == pytest.approx(0.5 * 0.1 + 0.55 * 0.9)


def test_wsd_by_hand() -> None:
    config = ScheduleConfig(kind="wsd", warmup_fraction=0.1, decay_fraction=0.2, final_fraction=0.0)
    schedule = Schedule(config, 2.0, 100)
    assert [schedule.at(token) for token in (5, 10, 50, 80, 90, 100)] == pytest.approx([1, 2, 2, 2, 1, 0])
    assert schedule.mean(80, 100) == pytest.approx(1.0)


def test_constant_stays() -> None:
    schedule = Schedule(ScheduleConfig(kind="constant", warmup_fraction=0.0), 0.3, 100)
    assert schedule.at(0) == schedule.at(99) == pytest.approx(0.3)
    assert [schedule.mean(0, 7), schedule.mean(93, 100)] == pytest.approx([0.3, 0.3])


def test_even_one_warm_up_step_is_above_zero() -> None:
    schedule = Schedule(ScheduleConfig(warmup_fraction=0.1), 1.0, 1000)
    assert schedule.mean(0, 100) == pytest.approx(0.5)
    assert schedule.mean(0, 1) == pytest.approx(0.005)


def test_millions_of_tiny_steps_never_go_below_zero() -> None:
    """Near a final rate of zero the two antiderivatives differ by less than they are rounded."""
    total = 2**36
    for kind in ("cosine", "wsd"):
        schedule = Schedule(ScheduleConfig.model_validate({"kind": kind, "final_fraction": 0.0}), 1e-3, total)
        assert min(schedule.mean(total - k * 64, total - k * 64 + 64) for k in range(1, 2000)) >= 0.0


def test_warmup_and_decay_have_floors_in_steps() -> None:
    config = ScheduleConfig(
        kind="wsd", warmup_fraction=0.02, decay_fraction=0.1, min_warmup_steps=10, min_decay_steps=30
    )
    small, large = Schedule(config, 1.0, 10_000, step=10), Schedule(config, 1.0, 10_000, step=100)
    assert (small.warmup, small.decay_start) == (200, 9_000)  # the shares: 20 steps, 100 steps
    assert (large.warmup, large.decay_start) == (1_000, 7_000)  # the floors: 10 steps, 30 steps
    assert large.mean(0, 10_000) == pytest.approx(sum(large.mean(t, t + 100) for t in range(0, 10_000, 100)) / 100)


def test_a_floor_takes_at_most_half_of_the_run() -> None:
    config = ScheduleConfig(kind="wsd", min_warmup_steps=40, min_decay_steps=100)
    schedule = Schedule(config, 1.0, 5_000, step=100)
    assert schedule.warmup == schedule.decay_start == 2_500
    assert schedule.at(5_000) == pytest.approx(config.final_fraction)
