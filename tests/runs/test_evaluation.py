from __future__ import annotations

import math
import random
import statistics
from typing import Any, cast

import pytest

from batchlab.core.metric import Metric
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


class Measured:
    """A trainable with a metric: batches are (sum of the metric, count)."""

    def measure(self, batch: Any) -> tuple[float, float]:
        return cast("tuple[float, float]", batch)


def test_a_metric_is_a_mean_over_what_it_counts() -> None:
    batches = cast("Any", [(9.0, 10.0), (1.0, 2.0)])
    accuracy = Metric(name="accuracy", better="higher")
    found = evaluate(cast("Trainable", Measured()), batches, metric=accuracy)
    assert found.loss == pytest.approx(1 - 10 / 12)
    assert found.error is not None


class Drawn:
    """A trainable whose loss is a fixed part and a draw; it notes every draw that it was asked for."""

    def __init__(self, width: float) -> None:
        self.width = width
        self.asked: list[int] = []

    def evaluate(self, batch: Any) -> tuple[float, int]:
        return self.evaluate_draw(batch, 0)

    def evaluate_draw(self, batch: Any, draw: int) -> tuple[float, int]:
        self.asked.append(draw)
        loss, count = batch
        return loss + self.width * random.Random(draw).gauss(0, 1) * math.sqrt(count), count


def test_every_batch_has_its_own_draws_which_are_the_same_in_every_evaluation() -> None:
    drawn, batches = Drawn(1.0), [(20.0, 10), (22.0, 10), (19.0, 10)]
    first = evaluate(cast("Trainable", drawn), cast("Any", batches))
    assert drawn.asked == [0, 1, 2]
    assert evaluate(cast("Trainable", drawn), cast("Any", batches)) == first
    assert first.draws_sd is None


def test_the_spread_over_draws_is_that_of_the_mean_loss() -> None:
    batches = [(20.0, 10)] * 50  # the mean of 500 targets, each with a draw of standard deviation 1
    found = [evaluate(cast("Trainable", Drawn(1.0)), cast("Any", batches[n:]), other_draws=True) for n in range(40)]
    measured = [one.draws_sd for one in found if one.draws_sd is not None]
    assert len(measured) == 40
    assert statistics.fmean(measured) == pytest.approx(1 / math.sqrt(300), rel=0.25)


def test_a_loss_that_draws_nothing_is_tried_once_and_has_no_spread() -> None:
    drawn, batches = Drawn(0.0), [(20.0, 10), (22.0, 10)]
    assert evaluate(cast("Trainable", drawn), cast("Any", batches), other_draws=True).draws_sd is None
    assert drawn.asked == [0, 1, 2]
