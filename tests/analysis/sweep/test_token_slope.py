from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.verdict import SlopeFrom

Study = Callable[..., Any]


def test_the_slope_is_that_of_a_run_at_half_the_budget(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(fall=0.1, noise_sd=0.004))
    assert found.slope is not None
    assert found.surface is not None
    assert found.surface.best is not None
    best = found.surface.best.best
    assert best is not None
    assert (found.slope.source, found.slope.factor) == (SlopeFrom.RUN, 2.0)
    assert (found.slope.global_batch_size, found.slope.learning_rate) == (best.global_batch_size, best.learning_rate)
    first, mean = best.losses[0], sum(best.losses) / len(best.losses)
    assert found.slope.drop.value == pytest.approx(first + 0.1 - mean)
    assert found.slope.drop.low is not None
    half = 2.7764 * (found.surface.noise_sd or 0) * math.sqrt(1 + 1 / 3)
    assert found.slope.drop.value - found.slope.drop.low == pytest.approx(half, rel=1e-3)
    assert all(run.tokens == found.token_budget for run in found.runs)  # the smaller runs are not part of the sweep


def test_a_loss_that_rises_with_tokens_has_no_slope(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(fall=-0.05))
    assert found.slope is None
    assert all(cost.tokens is None for cost in found.costs)


def test_language_models_without_a_smaller_budget_get_the_published_slope(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    assert found.slope is not None
    assert found.surface is not None
    assert found.surface.best is not None
    assert found.surface.best.val_loss is not None
    loss, drop = found.surface.best.val_loss.value, found.slope.drop
    assert (found.slope.source, drop.n) == (SlopeFrom.PUBLISHED, 0)
    assert drop.value == pytest.approx(loss * (2**0.055 - 1))
    assert drop.low == pytest.approx(loss * (2 ** (0.055 / 2.25) - 1))
    assert drop.high == pytest.approx(loss * (2 ** (0.055 * 2.25) - 1))
    # half a percent of the loss is 10 to 22 % more tokens on three published sizes, which lies between the limits
    shares = [0.005 * loss / limit for limit in (drop.high, drop.low) if limit]
    assert 2 ** shares[0] - 1 < 0.10 < 0.22 < 2 ** shares[1] - 1


def test_other_tasks_have_no_published_slope(synthetic_study: Study) -> None:
    assert assemble(*synthetic_study(unit="samples", token_budget=6400)).slope is None


def test_at_a_constant_learning_rate_the_curve_is_the_slope(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(settings={"schedule": {"kind": "constant"}}))
    assert found.slope is not None
    assert found.slope.source is SlopeFrom.CURVE
    assert found.surface is not None
    assert found.surface.best is not None
    assert found.surface.best.best is not None
    runs = found.surface.best.best.runs
    at = round((found.token_budget or 0) / found.slope.factor)
    falls = [dict(run.val_curve)[at] - (run.val_loss or 0) for run in runs]
    assert found.slope.drop.value == pytest.approx(sum(falls) / len(falls))


def test_a_run_of_another_schedule_is_no_evidence(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study(fall=0.1)
    other = experiment.model_copy(update={"schedule": experiment.schedule.model_copy(update={"final_fraction": 0.0})})
    found = assemble(other, task_info, records, rows, decisions)
    assert found.slope is not None
    assert found.slope.source is SlopeFrom.PUBLISHED
    assert replace(found, slope=None).costs == found.costs
