"""How an earlier study becomes the prior of a new one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from batchlab.scaling.published import PRIOR_BATCH_BY_BUDGET, PRIOR_RATE_BY_BUDGET
from batchlab.search.prior import DOUBTABLE, STUBBORN_STUDY, EarlierStudy, after_study, moved
from batchlab.search.trial import Trial, TrialOutcome

SIZES = (8, 16, 32, 64, 128)
RANGE = (3e-4, 1e-2)


def valley(size: int, rate: float) -> float:
    """Lowest at batch 16 and 2e-3; the best learning rate is ∝ √batch."""
    doublings = math.log2(size / 16)
    return 3 * (1 + 0.01 * ((math.log2(rate / 2e-3) - 0.5 * doublings) ** 2 + 0.3 * doublings**2))


OUTCOMES = {Trial(size, rate, 0): TrialOutcome(valley(size, rate)) for size in SIZES for rate in (1e-3, 2e-3, 4e-3)}


def test_a_study_is_moved_along_its_own_ridge() -> None:
    """At a batch size far below the best one the learning rate falls by its published exponent, whatever the basin."""
    here, there = (moved(EarlierStudy(OUTCOMES, ratio), SIZES, RANGE, 0.05) for ratio in (1.0, 16.0))
    tiny = np.array([-20.0])
    fallen = there.ridge(tiny) - here.ridge(tiny)
    assert float(fallen.mean()) == pytest.approx(4 * PRIOR_RATE_BY_BUDGET.mean, abs=0.05)
    assert float((there.batch - here.batch).mean()) == pytest.approx(4 * PRIOR_BATCH_BY_BUDGET.mean, abs=0.05)


def test_nothing_ignores_an_earlier_study_before_it_can_be_doubted() -> None:
    basins = moved(EarlierStudy(OUTCOMES), SIZES, RANGE, 0.05)
    wide = (-40.0, 40.0)
    untried, tried = (after_study(basins, wide, wide, runs) for runs in (DOUBTABLE - 1, DOUBTABLE))
    assert np.array_equal(untried.batch, basins.batch)
    assert np.mean(tried.batch != basins.batch) == pytest.approx(STUBBORN_STUDY, abs=0.005)
