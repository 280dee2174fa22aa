from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.analysis.sweep.trained import trained

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.retries import Retried
from batchlab.words.retries import retry_conclusions, retry_rule

AGAIN = replace(trained(64, 4e-3, 1.91), warmup_fraction=0.2)
FAILED = replace(trained(64, 4e-3, None), warmup_fraction=0.2)


@pytest.fixture
def found(synthetic_study: Callable[..., Any]) -> Findings:
    return assemble(*synthetic_study())


def test_the_rule_is_said_before(found: Findings) -> None:
    assert "tried again once, each time at half the learning rate and twice the warm-up" in retry_rule(1)
    assert "up to 3 times" in retry_rule(3)
    assert retry_conclusions(found) == []


def test_what_trained_is_told_as_a_cell_of_its_own(found: Findings) -> None:
    told = replace(found, retried=(Retried(trained(64, 8e-3, None), (AGAIN,)),))
    [sentence] = retry_conclusions(told)
    assert sentence.startswith(
        "1 cell diverged and was tried again at half the learning rate and twice the warm-up; it"
    )
    assert "batch 64 at 8.0e-3 as 4.0e-3 with a warm-up of 20 % (loss 1.910)" in sentence
    assert "the cell that diverged stays diverged" in sentence


def test_attempts_that_diverged_too_are_told(found: Findings) -> None:
    told = replace(found, retried=(Retried(trained(64, 8e-3, None), (FAILED,)),))
    assert "every attempt diverged, too" in retry_conclusions(told)[0]


def test_many_are_not_listed_one_by_one(found: Findings) -> None:
    many = tuple(Retried(trained(64, rate * 1e-3, None), (AGAIN,)) for rate in range(8, 14))
    [sentence] = retry_conclusions(replace(found, retried=many))
    assert "; and 2 more." in sentence
    assert "all trained to the end" in sentence
