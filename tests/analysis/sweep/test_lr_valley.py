from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.sweep.lr_valley import lr_valleys
from batchlab.words.valleys import valley_conclusions

Study = Callable[..., Any]


def test_the_width_is_that_of_the_parabola(synthetic_study: Study) -> None:
    """0.02 nats per doubling²: half a percent of the loss is √(0.012/0.02) doublings away, at every size."""
    found = assemble(*synthetic_study(unit="samples", token_budget=6400, noise_sd=0.0005, seeds=5))
    assert found.surface is not None
    assert found.surface.best is not None
    assert found.surface.best.val_loss is not None
    valleys = lr_valleys(found.surface, None, 0.03)
    assert valleys is not None
    assert not valleys.in_tokens
    assert valleys.above == pytest.approx(0.005 * found.surface.best.val_loss.value)
    width = 2 * math.sqrt(valleys.above / 0.02)
    assert len(valleys.valleys) == 5
    for valley in valleys.valleys:
        best = 1.5e-3 * (valley.global_batch_size / 16) ** 0.5
        assert valley.doublings.value == pytest.approx(width, rel=0.1)
        assert valley.doublings.low is not None
        assert valley.doublings.high is not None
        assert valley.doublings.low < width < valley.doublings.high
        assert math.sqrt(valley.low * valley.high) == pytest.approx(best, rel=0.05)
        assert math.log2(valley.high / valley.low) == pytest.approx(valley.doublings.value)
    assert valleys.narrowing is not None
    assert valleys.narrowing.low is not None
    assert valleys.narrowing.high is not None
    assert valleys.narrowing.low < 0 < valleys.narrowing.high
    first, second = valley_conclusions(found)
    assert first.startswith("Learning rates within 0.012 of the best of their size, by local fits: batch 4 from ")
    assert "does not measurably change with the batch size" in second


def test_the_tolerance_is_told_in_tokens_where_their_slope_is_known(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(fall=0.1))
    assert found.surface is not None
    valleys = lr_valleys(found.surface, found.slope, 0.03)
    assert valleys is not None
    assert found.slope is not None
    assert valleys.above == pytest.approx(found.slope.drop.value * (1 - 1.03 ** (-1 / 3)) / (2 ** (1 / 3) - 1))
    assert " (3 % of the tokens) " in valley_conclusions(found)[0]


def test_without_noise_or_a_fit_nothing_is_said(synthetic_study: Study) -> None:
    assert valley_conclusions(assemble(*synthetic_study(seeds=1))) == []
    assert valley_conclusions(assemble(*synthetic_study(learning_rates=(1e-3,)))) == []
    assert valley_conclusions(assemble(*synthetic_study(keep=0))) == []
