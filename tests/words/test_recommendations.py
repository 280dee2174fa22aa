from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from batchlab.analysis.assemble import assemble
from batchlab.analysis.verdict import Goal
from batchlab.core.check import CheckItem, StartLoss
from batchlab.words.reasons import GOALS
from batchlab.words.recommendations import advise, sentence, why_none

Study = Callable[..., Any]


def test_advice_is_a_size_a_rate_and_a_layout(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(noise_sd=0.0))
    assert found.recommended is not None
    advice = advise(found.recommended, found)
    assert advice.goal == "Recommended"
    assert advice.headline == "16 sequences at LR 1.0e-3"
    assert advice.detail == (
        "micro-batch 16 × accum 1 × 1 device = 16 sequences (1,024 tokens) per step, warm-up 40,960 tokens"
    )
    assert advice.why.endswith(".")


def test_every_goal_has_a_name() -> None:
    assert set(GOALS) == set(get_args(Goal))
    assert len(set(GOALS.values())) == len(GOALS)


def test_no_recommendation_has_a_reason(synthetic_study: Study) -> None:
    nothing = assemble(*synthetic_study(keep=0))
    assert why_none(replace(nothing, surface=None)) == (
        "No training run has finished yet, so there is nothing to recommend."
    )
    failed = CheckItem(name="loss", status="fail", finding=StartLoss(found="not_finite", loss=math.nan))
    unsound = why_none(replace(nothing, surface=None, checks=(failed,)))
    assert unsound.startswith(
        "The check of the task failed, so nothing was trained: the loss is nan before any training"
    )
    some = replace(assemble(*synthetic_study(keep=2)), surface=None)
    assert why_none(some) == "2 training runs finished, which is not enough to recommend a batch size."
    diverged = assemble(*synthetic_study(diverges_above=0.0))
    assert diverged.surface is not None
    assert "finite loss" in why_none(diverged)


def test_sentences_begin_with_a_capital_and_end() -> None:
    assert sentence("fastest of 2") == "Fastest of 2."
    assert sentence("Really?") == "Really?"
    assert sentence("") == ""
