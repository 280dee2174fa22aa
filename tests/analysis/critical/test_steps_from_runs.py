"""The target that runs are compared at, and the time to reach it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.critical.iso_loss import BudgetRun
from batchlab.analysis.critical.steps_from_runs import ToTarget, common_target, hours_to_target


def test_the_target_is_one_that_most_sizes_cross() -> None:
    runs = [
        BudgetRun(batch, 0.1, tokens, 3.0 - math.log10(tokens) / 2 + worse)
        for batch, worse in ((8, 0.0), (16, 0.05), (32, 0.1), (256, 5.0))
        for tokens in (1e3, 4e3, 1.6e4)
    ]
    target = common_target(runs)
    assert target is not None
    assert 3.1 - math.log10(1.6e4) / 2 < target < 3.0 - math.log10(1e3) / 2
    assert common_target(runs[:1]) is None


def test_hours_divide_by_devices_while_each_has_a_share(synthetic_study: Callable[..., Any]) -> None:
    found = assemble(*synthetic_study())
    point = ToTarget(batch=64, tokens=1e6, steps=1e6 / (64 * 64))
    one, four = (hours_to_target(point, found.throughput, devices, 64) for devices in (1, 4))
    assert one is not None
    assert four is not None
    assert one / 4 < four < one  # a share of 16 is slower per device than 64 at once
    assert hours_to_target(point, found.throughput, 65, 64) is None
    assert hours_to_target(replace(point, tokens=None), found.throughput, 1, 64) is None
