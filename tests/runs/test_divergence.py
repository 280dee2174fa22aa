"""When a run counts as diverged: means over windows, not single steps."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.runs.divergence import Diverged, DivergenceWatch, require_finite, require_near_start, window_steps


def first_alarm(losses: list[float], window: int = 10) -> int | None:
    watch = DivergenceWatch(window)
    return next((step for step, loss in enumerate(losses, 1) if watch.diverged(loss)), None)


def test_windows_hold_enough_samples_and_steps() -> None:
    assert window_steps(4) == 64
    assert window_steps(64) == 10
    assert window_steps(1) == 256


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_is_divergence_at_once(bad: float) -> None:
    assert first_alarm([1.0, 1.0, bad]) == 3


def test_the_end_of_the_first_window_three_times_above_the_start_is_named() -> None:
    assert first_alarm([1.0] * 10 + [3.1] * 10) == 20
    assert first_alarm([1.0] * 10 + [2.9] * 10) is None


def test_heavy_tailed_noise_around_a_falling_mean_is_fine() -> None:
    noise = np.random.default_rng(0).chisquare(1, size=5000)
    assert first_alarm(list(noise * np.linspace(1.0, 0.3, 5000)), window=64) is None


def test_a_negative_loss_that_falls_is_fine_and_one_that_explodes_is_not() -> None:
    assert first_alarm(list(np.linspace(-1.0, -50.0, 200))) is None
    assert first_alarm([-1.0] * 10 + [5.0] * 10) == 20


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        ({"train_loss": math.nan, "grad_norm": math.nan}, "The training loss was NaN at step 7 of 1,000."),
        ({"train_loss": 2.5, "grad_norm": math.inf}, "The gradient norm was infinite at step 7 of 1,000."),
        ({"val_loss": math.nan}, "The validation loss was NaN at step 7 of 1,000."),
    ],
)
def test_what_was_not_finite_is_named(measured: dict[str, float], reason: str) -> None:
    with pytest.raises(Diverged) as raised:
        require_finite(7, 1000, **measured)
    assert str(raised.value) == reason
    row = raised.value.row(tokens_per_step=8)
    assert (row.step, row.tokens) == (7, 56)
    assert {name: getattr(row, name) for name in measured} == pytest.approx(measured, nan_ok=True)


def test_what_is_finite_passes() -> None:
    require_finite(7, 1000, train_loss=2.5, grad_norm=0.0, val_loss=-1.0)


def test_a_mean_far_above_the_start_is_named_with_the_start() -> None:
    watch = DivergenceWatch(1)
    require_near_start(watch, 6, 1000, train_loss=2.5, grad_norm=1.0)
    with pytest.raises(Diverged) as raised:
        require_near_start(watch, 7, 1000, train_loss=9.0, grad_norm=1.0)
    assert str(raised.value) == "The mean training loss was over 3 times its start, 2.5, at step 7 of 1,000."
    assert (raised.value.train_loss, raised.value.grad_norm) == (9.0, 1.0)


@given(st.lists(st.floats(0.5, 1.0), min_size=1, max_size=300))
def test_losses_within_a_factor_of_two_never_alarm(losses: list[float]) -> None:
    assert first_alarm(losses) is None


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=100), st.integers(1, 99))
def test_a_watch_taken_up_from_its_fields_goes_on_alike(losses: list[float], cut: int) -> None:
    whole, first = DivergenceWatch(5), DivergenceWatch(5)
    expected = [whole.diverged(loss) for loss in losses]
    before = [first.diverged(loss) for loss in losses[:cut]]
    second = DivergenceWatch(**asdict(first))
    assert before + [second.diverged(loss) for loss in losses[cut:]] == expected
