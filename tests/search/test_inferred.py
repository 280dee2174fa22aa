from __future__ import annotations

import math

import pytest

from batchlab.search.inferred import infer
from batchlab.search.trial import Trial, TrialOutcome


def valley(size: int, rate: float) -> float:
    return 3 * (1 + 0.01 * (math.log2(rate / 2e-3) ** 2 + 0.3 * math.log2(size / 32) ** 2))


def test_it_agrees_with_what_was_run_and_uncertainty_grows_away_from_it() -> None:
    cells = [(size, rate) for size in (16, 32, 64) for rate in (1e-3, 2e-3, 4e-3)]
    outcomes = {Trial(size, rate, 0): TrialOutcome(valley(size, rate)) for size, rate in cells}
    losses, deviations = infer(outcomes, [32, 32, 8], [2e-3, 2.8e-3, 1e-6])
    assert losses[0] == pytest.approx(3, rel=2e-3)
    assert losses[1] == pytest.approx(valley(32, 2.8e-3), rel=3e-3)
    assert deviations[0] < 0.2 < deviations[2]
    assert losses[2] > losses[0]


def test_losses_below_zero_are_inferred_too() -> None:
    outcomes = {Trial(8, rate, 0): TrialOutcome(loss) for rate, loss in ((1e-3, -1.0), (2e-3, -1.2), (4e-3, -1.0))}
    losses, _ = infer(outcomes, [8], [2e-3])
    assert losses[0] == pytest.approx(-1.2, abs=0.05)


def test_nothing_is_inferred_without_a_loss() -> None:
    with pytest.raises(ValueError, match="finite loss"):
        infer({Trial(8, 1e-3, 0): TrialOutcome(None)}, [8], [1e-3])
