"""The noise scale along a run whose gradients are drawn, all parameters and norm layers from the same samples."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from batchlab.analysis.critical.noise_series import noise_series
from batchlab.analysis.values import Run
from batchlab.core.record import GradientSample, MetricRow, Outcome

ALL, INNER = 24.0, 6.0
"""Noise scales of all parameters and of the norm layers."""
BATCH, STEPS = 16, 256


def run(kinds: list[str], *, samples: bool = True) -> Run:
    """The gradient is 1 along one axis; each kind of look in turn. The micro-batch is cut for all parameters only."""
    random, rows = np.random.default_rng(0), []
    for step in range(STEPS):
        full = np.array([1.0, 0, 0]) + math.sqrt(ALL / 3) * random.standard_normal((BATCH, 3))
        inner = np.array([1.0, 0]) + math.sqrt(INNER / 2) * random.standard_normal((BATCH, 2))
        looks = kinds[step % len(kinds)]
        halves = full.reshape(2, BATCH // 2, 3).mean(axis=1) if looks == "all" else inner.mean(axis=0)[None]
        mean = halves.mean(axis=0)
        single = (float((inner**2).sum(axis=1).mean()), float((inner.mean(axis=0) ** 2).sum()))
        sample = GradientSample(
            parameters=looks,
            micro_batch_sizes=(BATCH / len(halves),) * len(halves),
            squared_norms=tuple(float(half @ half) for half in halves),
            mean_squared_norm=float(mean @ mean),
            norm_layer_samples=single if samples else None,
        )
        rows.append(MetricRow(step=step + 1, tokens=(step + 1) * 100, gradients=sample))
    fields = {"global_batch_size": BATCH, "learning_rate": 1e-3, "run_id": "train-x", "seed": 0}
    return cast(Run, SimpleNamespace(outcome=Outcome.COMPLETED, rows=tuple(rows), **fields))


def within(found: Any, truth: float) -> bool:
    return bool(found.value is not None and (found.value.low or 0) <= truth <= (found.value.high or math.inf))


def test_both_are_measured_in_one_run_and_their_ratio_is_the_truths() -> None:
    found = noise_series([run(["all"])])
    assert found is not None
    assert (found.parameters, found.calibrated) == ("all", STEPS)
    assert within(found.whole, ALL)
    assert within(found.norm_layers, INNER)
    assert found.norm_layer_ratio == pytest.approx(ALL / INNER, rel=0.25)


def test_norm_layers_stand_in_and_the_steps_that_looked_at_all_calibrate_them() -> None:
    found = noise_series([run(["norm_layers"] * 3 + ["all"])])
    assert found is not None
    assert (found.parameters, found.calibrated) == ("norm_layers", STEPS // 4)
    assert within(found.whole, INNER)
    assert found.whole.steps == STEPS
    assert found.norm_layer_ratio == pytest.approx(ALL / INNER, rel=0.5)
    assert len(found.windows) >= 6


def test_single_samples_say_more_than_halves() -> None:
    """The interval of norm layers is the narrower one, though their noise scale is as well determined in truth."""
    found = noise_series([run(["all"])])
    assert found is not None
    widths = [
        math.log((one.value.high or 0) / (one.value.low or 1))
        for one in (found.norm_layers, found.whole)
        if one and one.value
    ]
    assert widths[0] < widths[1]


def test_without_a_calibration_there_is_no_ratio() -> None:
    alone = noise_series([run(["norm_layers"])])
    assert alone is not None
    assert (alone.parameters, alone.norm_layer_ratio, alone.calibrated) == ("norm_layers", None, 0)
    bare = noise_series([run(["all"], samples=False)])
    assert bare is not None
    assert (bare.norm_layers, bare.norm_layer_ratio) == (None, None)
    assert noise_series([]) is None
