"""Published figures that are derived are what their formula gives."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


def test_the_table_of_zero_follows_its_formula(module_of: Callable[[str, str], ModuleType]) -> None:
    """2 bytes of parameters, 2 of gradients and 12 of optimizer state per parameter (arXiv:1910.02054, section 5)."""
    for devices, (stage_2, stage_3) in module_of("published_peaks", "sharded").ZERO_TABLE.items():
        assert stage_2 == pytest.approx(7.5 * (2 + 14 / devices), abs=0.051)
        assert stage_3 == pytest.approx(7.5 * 16 / devices, abs=0.0051)
