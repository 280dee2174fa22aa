"""The cheapest runs that could show an extrapolated optimum to be wrong."""

from __future__ import annotations

import pytest

from batchlab.scaling import CellRuns, Optimum, PairOfRuns, Refused, Scaled, SmallStudy, confirm_batch, confirm_budget
from batchlab.scaling.refusals import NothingMeasured
from batchlab.scaling.rules import SameBatch

ONE = [Optimum(1e9, 64, 1e-3, 1e8)]
TWO = [Optimum(1e8, 20, 1e-3, 1e8), Optimum(1.6e9, 80, 2e-3, 1e8)]


def test_the_run_that_confirms_a_batch() -> None:
    sure = confirm_batch(Scaled(2e-3, SameBatch(), 1.2e-3, 3e-3), 128, 1e9)
    assert (sure.learning_rates, sure.tokens) == ((2e-3,), 1e9)
    unsure = confirm_batch(Scaled(2e-3, SameBatch(), 0.5e-3, 3e-3), 128, 1e9)
    assert unsure == CellRuns(1e9, 128, (2e-3, 1e-3))
    assert unsure.tokens == 2e9


def test_the_runs_that_confirm_a_budget() -> None:
    one = confirm_budget(ONE, 2e10)
    assert isinstance(one, SmallStudy)
    assert (one.runs, one.token_budget, one.tokens) == (8, 0.25e9, 2e9)
    assert one.batch_size == pytest.approx(32)
    several = confirm_budget(TWO, 4e10)
    assert isinstance(several, PairOfRuns)
    assert (several.token_budget, several.tokens) == (6.4e9, 12.8e9)
    assert several.tokens < 4e10
    assert several.measured == TWO[1]
    assert confirm_budget([], 1e9) == Refused(NothingMeasured())
