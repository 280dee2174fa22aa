"""What is judged where that is a metric."""

from __future__ import annotations

import math

import pytest

from batchlab.core.errors import RunFailure
from batchlab.core.metric import Metric


def test_what_should_be_low_counts_as_it_is() -> None:
    found = Metric(name="perplexity")
    assert (found.title, found.judged(12.5)) == ("perplexity", 12.5)


def test_what_should_be_high_counts_as_what_is_missing() -> None:
    found = Metric(name="accuracy (%)", better="higher", best=100.0)
    assert (found.title, found.judged(93.0)) == ("100 − accuracy (%)", 7.0)


def test_more_than_the_best_possible_value_is_refused() -> None:
    with pytest.raises(RunFailure, match="metric_best=100"):
        Metric(name="accuracy", better="higher").judged(93.0)
    assert math.isnan(Metric(name="accuracy", better="higher").judged(math.nan))
