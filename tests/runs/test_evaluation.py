from __future__ import annotations

import random
import statistics
from typing import Any, cast

import pytest

from batchlab.core.protocols import Trainable
from batchlab.runs.evaluation import evaluate


class Told:
    """A trainable whose batches are their own answers: (sum of losses, count of targets)."""

    def evaluate(self, batch: Any) -> tuple[float, int]:
        return cast("tuple[float, int]", batch)


def evaluated(batches: list[tuple[float, int]]) -> tuple[float, float | None]:
    found = evaluate(cast("Trainable", Told()), cast("Any", batches))
    return found.loss, found.error


def test_the_mean_is_over_targets_and_unequal_batches_weigh_as_they_should() -> None:
    assert evaluated([(20.0, 10), (3.0, 1)])[0] == pytest.approx(23 / 11)


def test_one_batch_has_no_error_and_equal_ones_none_to_speak_of() -> None:
    assert evaluated([(20.0, 10)])[1] is None
    assert evaluated([(20.0, 10), (20.0, 10)])[1] == 0.0


def test_the_error_is_the_spread_of_means_over_held_out_sets() -> None:
    dice = random.Random(3)

    def held_out() -> tuple[float, float | None]:
        return evaluated([(sum(dice.gauss(2, 1) for _ in range(16)), 16) for _ in range(12)])

    sets = [held_out() for _ in range(400)]
    spread = statistics.stdev(loss for loss, _ in sets)
    claimed = statistics.fmean(error for _, error in sets if error is not None)
    assert claimed == pytest.approx(spread, rel=0.1)
