from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.analysis.sweep.test_warmups import CONFIRMING, LONGER, SAME, WARMUPS, runs

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.warmups import warmup_finding
from batchlab.words.phrases import format_warmup
from batchlab.words.plan import describe_best_warmup
from batchlab.words.warmups import format_taken, warmup_conclusions

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    """A study whose batch sizes include 16, which is recommended."""
    return assemble(*synthetic_study(batch_curvature=0.05, best_batch=16))


def told(found: Findings, best: dict[int, float], **more: object) -> str:
    warmups = warmup_finding(runs(best, **more), CONFIRMING, WARMUPS)  # type: ignore[arg-type]
    return "\n".join(warmup_conclusions(replace(found, warmups=warmups)))


def test_the_best_of_each_size_the_others_and_the_trend(found: Findings) -> None:
    text = told(found, LONGER, noise=1e-3)
    assert "the best is 1 % of the run at batch 8, 4 % at batch 16, 16 % at batch 32" in text
    assert "at batch 8 and 32 it is the shortest or longest that was tried (n = 3 sizes)." in text
    assert "It is told from all others by 95 % intervals at every batch size (n = 3 sizes)." in text
    assert "At batch 16, against a warm-up of 4 %: 1 % ends +0.04" in text
    assert "(paired, n = 4 seeds)" in text
    assert "Larger batches gain more by a longer warm-up: from a warm-up of 1 % to 16 %, the loss of batch 32" in text
    assert "changes by −0.320 [" in text
    assert "relative to that of batch 8 (95 % interval, n = 4 seeds at the least)." in text


def test_no_trend_is_claimed_within_noise(found: Findings) -> None:
    text = told(found, SAME, noise=0.05)
    assert "Whether larger batches want a longer warm-up cannot be told from these runs" in text


def test_smaller_batches_may_want_the_longer_one(found: Findings) -> None:
    text = told(found, {8: 0.16, 16: 0.04, 32: 0.01}, noise=1e-3)
    assert "Larger batches gain less by a longer warm-up" in text
    assert "changes by +0.3" in text


def test_without_repeated_seeds_nothing_is_called_better(found: Findings) -> None:
    text = told(found, LONGER, seeds=(0,))
    assert "no difference between warm-ups is told from noise" in text
    assert "(n = 1, not tested)" in text
    assert "cannot be told: no seed was repeated" in text


def test_one_warmup_is_not_mentioned(found: Findings) -> None:
    assert warmup_conclusions(found) == []
    assert format_warmup(found, 1000) == "warm-up 1,000 tokens"


def test_what_was_chosen_among(found: Findings) -> None:
    warmups = warmup_finding(runs(LONGER, noise=1e-3), CONFIRMING, WARMUPS)
    assert warmups is not None
    sweep = found.experiment.sweep.model_copy(update={"warmup_fractions": (0.01, 0.04, 0.16)})
    asked = replace(found, warmups=warmups, experiment=found.experiment.model_copy(update={"sweep": sweep}))
    assert format_warmup(asked, 1000) == "warm-up 1,000 tokens (the best of 1 %, 4 % and 16 % tried)"
    alone = found.experiment.model_copy(update={"sweep": sweep.model_copy(update={"warmup_fractions": (0.04,)})})
    diverged = replace(asked, experiment=alone)  # whose other warm-ups were tried again with what had diverged
    assert format_warmup(diverged, 1000) == "warm-up 1,000 tokens"
    assert format_taken(warmups).startswith("1 % of the run at batch 8, 4 %")
    size = warmups.at(16)
    assert size is not None
    assert describe_best_warmup(size) == "4 % of the budget, the best of 1 %, 4 % and 16 % at batch 16"
