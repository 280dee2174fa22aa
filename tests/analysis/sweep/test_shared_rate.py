"""One learning rate for all sizes against each size at its own best, on records with known truth."""

from __future__ import annotations

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.sweep.shared_rate import compare_rates

RATES = (5e-4, 1e-3, 2e-3, 4e-3)


def found(synthetic_study, **changes):
    arguments = {"noise_sd": 0.0, "max_extensions": 0, "seeds": 1, "best_lr": 1e-3, "lr_exponent": 1.0}
    return assemble(*synthetic_study((8, 16, 32), RATES, **{**arguments, **changes}))


def test_a_shared_rate_favours_the_size_it_suits(synthetic_study):
    """loss = floor + 0.02·log2(LR / best)², and the best rate is proportional to the batch: 5e-4, 1e-3, 2e-3."""
    *shared, own = compare_rates(found(synthetic_study, batch_curvature=0.0).surface)
    assert [comparison.learning_rate for comparison in shared] == list(RATES)
    assert [comparison.lowest for comparison in shared] == [8, 16, 32, 32]
    assert shared[0].spread == pytest.approx(0.02 * 2**2)
    assert own.learning_rate is None
    assert own.spread == pytest.approx(0.0, abs=1e-12)


def test_a_rate_that_diverged_somewhere_is_not_shared(synthetic_study):
    surface = found(synthetic_study, diverges_above=5.0).surface  # 4e-3 is 8 times the best of batch 8
    assert [c.learning_rate for c in compare_rates(surface)] == [5e-4, 1e-3, 2e-3, None]
