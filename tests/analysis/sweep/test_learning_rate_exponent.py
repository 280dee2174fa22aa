from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.sweep.learning_rate_exponent import learning_rate_exponent

Study = Callable[..., Any]


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5, 1.0])
def test_the_learning_rate_exponent_is_recovered(synthetic_study: Study, exponent: float) -> None:
    surface = assemble(
        *synthetic_study(lr_exponent=exponent, noise_sd=0.0, learning_rates=(2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3))
    ).surface
    assert surface is not None
    fitted = learning_rate_exponent(surface)
    assert fitted is not None
    assert fitted.value.value == pytest.approx(exponent, abs=1e-6)
    assert fitted.value.n == 5


def test_no_exponent_below_three_sizes(synthetic_study: Study) -> None:
    surface = assemble(*synthetic_study(sizes=(8, 16))).surface
    assert surface is not None
    assert learning_rate_exponent(surface) is None
