"""Why no rule gives a number, in sentences that say what would help."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from batchlab.core.batch import Unit
from batchlab.scaling import LearningRateRule, Refusal
from batchlab.scaling.published import POWER_LINES, STEP_LAW
from batchlab.scaling.refusals import (
    AboveBestBatch,
    AboveCriticalBatch,
    AtEqualTime,
    BatchTooFar,
    LawCountsTokens,
    LawNeedsParameters,
    LawWithoutRate,
    MixedBudgets,
    MixedModels,
    NeedsBestBatch,
    Negative,
    NoAnswer,
    NoHalfLife,
    NoModelSize,
    NothingMeasured,
    NothingTuned,
    NotPositive,
    OptimumOnlyBounded,
    OptimumTooFar,
    OtherOptimizer,
    SdeOutOfRange,
    TooFewSteps,
    WarmupTooShort,
)
from batchlab.scaling.rules import Axis
from batchlab.words.refusals import describe_refusal

SENTENCES: list[tuple[Refusal, str]] = [
    (NotPositive("learning_rate", math.nan), "Learning rate: nan was given; it must be a finite number above 0."),
    (Negative("warmup_tokens", -1), "Warm-up tokens: -1 was given; it must be a finite number of at least 0."),
    (NoHalfLife(1.0), "A beta of 1 has no half-life"),
    (NothingTuned(), "run the study first"),
    (
        BatchTooFar(64, 1024, 8),
        "Batch 1,024 is 16 × away from 64, where the learning rate was tuned; it is extrapolated at most 8 ×, to 8 to "
        "512. Tune it at a batch size nearer to it.",
    ),
    (NeedsBestBatch(LearningRateRule.SATURATING), "The saturating rule needs the best batch size B_opt"),
    (AboveBestBatch(LearningRateRule.LINEAR, 256, 512), "ends at the best batch size, 256, and this move reaches 512"),
    (AboveBestBatch(LearningRateRule.SQUARE_ROOT, 256, 512), "Use the saturating rule."),
    (NothingMeasured(), "Nothing was measured"),
    (NoAnswer(), "has no answer"),
    (AtEqualTime(), "gave every batch size the same time"),
    (OptimumOnlyBounded(4, 4, 64), "was the smallest one tried, so all that is known is that it is at most 4"),
    (OptimumOnlyBounded(64, 4, 64), "was the largest one tried, so all that is known is that it is at least 64"),
    (OptimumOnlyBounded(64, 64, 64), "Only batch 64 was tried"),
    (OtherOptimizer("sgd"), "published for Adam only, and this optimizer is SGD"),
    (MixedModels((1e8, 3e8)), "(100M, 300M parameters)"),
    (MixedBudgets(), "different token budgets"),
    (NoModelSize(), "number of parameters"),
    (
        OptimumTooFar(Axis.BUDGET, 3.1e10, 1e9, 30),
        "A token budget of 31B is 31 × beyond what was measured (1B), and nothing is extrapolated further than 30 ×. "
        "Measure a budget nearer to it, at least 1.03B.",
    ),
    (OptimumTooFar(Axis.BUDGET, 3e7, 1e9, 30), "at most 900M"),
    (OptimumTooFar(Axis.MODEL_SIZE, 1e10, 1e8, 30), "A model size of 10B is 100 × beyond what was measured (100M)"),
    (OptimumTooFar(Axis.BUDGET, 1e7, 4e9, 30, laws=True), "beyond published laws (4B)"),
    (LawCountsTokens(), "this study counts samples"),
    (LawNeedsParameters(STEP_LAW), "Step Law needs the number of parameters"),
    (LawWithoutRate(POWER_LINES), "Power Lines gives no learning rate"),
    (SdeOutOfRange(0.95, 40, 20), "κ(1 − beta) is 2 and must stay below 1, so κ below 20."),
    (AboveCriticalBatch(512, 256), "Batch 512 is above the critical batch size 256"),
    (WarmupTooShort(4 * 8192, 8192, 5), "A warm-up of 32,768 tokens is 4 steps of 8,192 tokens; under 5 steps"),
    (TooFewSteps(512, 8, 4096, Unit.SAMPLES, 50), "Batch 512 would make 8 steps of a budget of 4,096 samples"),
]


@pytest.mark.parametrize(("refusal", "says"), SENTENCES, ids=lambda value: type(value).__name__)
def test_every_refusal_is_a_sentence(refusal: Refusal, says: str) -> None:
    text = describe_refusal(refusal)
    assert says in text
    assert text.endswith(".")


def test_no_refusal_is_without_a_sentence() -> None:
    assert {type(refusal) for refusal, _ in SENTENCES} == set(get_args(Refusal))
