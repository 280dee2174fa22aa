"""The sentences of `batchlab check`."""

from __future__ import annotations

from math import nan
from typing import Literal

import pytest

from batchlab.core.check import (
    CheckFinding,
    CheckItem,
    CheckResult,
    DataSizeFinding,
    EvaluationFinding,
    GradientFinding,
    HalvesLoss,
    LearningRateFinding,
    OverlapFinding,
    RaisedError,
    ReductionFinding,
    SeedFinding,
    SplittingFinding,
    StartLoss,
    TooLarge,
)
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.words.check import check_failed, check_lines, checked_again, describe_check, first_failure

LOSSES = HalvesLoss(samples=8, whole=1.25, first=1.0, second=1.5)


def text(finding: CheckFinding) -> str:
    return describe_check(CheckItem(name="item", status="note", finding=finding))


@pytest.mark.parametrize(
    ("finding", "phrase"),
    [
        (StartLoss(found="not_finite", loss=nan), "the loss is nan before any training"),
        (StartLoss(found="finite", loss=1.1), "1.1 before training"),
        (StartLoss(found="finite", loss=3.9, vocabulary=50), "a uniform prediction gives ln(50) = 3.91"),
        (StartLoss(found="far_above_uniform", loss=9.0, vocabulary=50), "far above"),
        (StartLoss(found="far_below_uniform", loss=2.0, vocabulary=50), "pretrained"),
        (ReductionFinding(found="mean", losses=LOSSES), "a mean: loss of 8 samples 1.25, of its halves 1 and 1.5"),
        (ReductionFinding(found="sum", losses=LOSSES), "a sum, as declared: loss of 8 samples"),
        (ReductionFinding(found="sum_with_count", losses=LOSSES, own_count=8.0), "8 targets in 8 samples"),
        (ReductionFinding(found="sum_not_declared", losses=LOSSES), 'pass reduction="sum"'),
        (ReductionFinding(found="mean_declared_as_sum", losses=LOSSES), 'omit reduction="sum"'),
        (ReductionFinding(found="mean_with_count", losses=LOSSES), "(mean, count)"),
        (
            ReductionFinding(found="count_differs", losses=LOSSES, own_count=50.0, count=96.0),
            "counts 50 targets in 8 samples, but 96 are expected",
        ),
        (
            ReductionFinding(found="mean_over_other_targets", losses=LOSSES, target_ratio=(0.25, 2.0)),
            "0.25 to 2 times as many",
        ),
        (ReductionFinding(found="neither", losses=LOSSES), "neither a mean nor a sum over 4 + 4 samples"),
        (
            SplittingFinding(found="equal", samples=8, difference=2e-7),
            "gradients of 8 samples and of 4 + 4 agree to 2e-07",
        ),
        (
            SplittingFinding(found="mixes", samples=8, difference=0.123, layer="1 (BatchNorm1d)"),
            "1 (BatchNorm1d) mixes samples; its statistics depend on the batch",
        ),
        (SplittingFinding(found="mixes", samples=8, difference=0.123), "the loss function mixes samples: "),
        (SplittingFinding(found="mixes", samples=8, difference=0.123), "differ by 12.3 %"),
        (SplittingFinding(found="not_repeatable", samples=8, difference=0.5), "differ by 50.0 %"),
        (SplittingFinding(found="reduction_unknown", samples=8), "fix 'mean or sum' first"),
        (SeedFinding(found="not_seeded", parameter="2.weight"), "first in 2.weight"),
        (SeedFinding(found="same_module"), "same module every time"),
        (SeedFinding(found="ignored"), "every seed gives the same parameters"),
        (
            LearningRateFinding(found="honoured", own_optimizer=False, learning_rate=1e-3, distance_ratio=1.98),
            "2 × as far",
        ),
        (
            LearningRateFinding(found="moves_at_zero", own_optimizer=True, learning_rate=1e-3),
            "your optimizer moves the parameters at learning rate 0",
        ),
        (
            LearningRateFinding(
                found="moves_at_zero",
                own_optimizer=True,
                group=OptimizerGroup(optimizer="Muon", learning_rate_ratio=0.5, parameter_count=2_000_000),
                learning_rate=1e-3,
            ),
            "your optimizer (Muon, 2M parameters, at 0.5 × the learning rate) moves the parameters at learning rate 0",
        ),
        (
            LearningRateFinding(found="moves_nothing", own_optimizer=False, learning_rate=1e-3),
            "the optimizer moves nothing in three steps at 0.001; read lr from param_groups",
        ),
        (
            LearningRateFinding(found="ignores_changes", own_optimizer=False, learning_rate=1e-3),
            "at 0.001 and at twice that",
        ),
        (LearningRateFinding(found="parameters_not_finite", own_optimizer=False, learning_rate=1e-3), "at 0.002"),
        (EvaluationFinding(found="random", losses=(1.0, 1.5)), "twice gives 1 and 1.5"),
        (EvaluationFinding(found="draws", losses=(1.0, 1.5)), "draws random numbers in evaluation (1, and 1.5 with"),
        (EvaluationFinding(found="depends_on_order", losses=(1.0, 1.5)), "order of its samples (1 and 1.5)"),
        (EvaluationFinding(found="changes_state", losses=(1.0, 1.0)), "buffers"),
        (EvaluationFinding(found="changes_training", losses=(1.0, 1.0)), "after an evaluation"),
        (GradientFinding(found="all", parameter_count=1_600, tensors=4), "(4 tensors)"),
        (
            GradientFinding(found="some", parameter_count=9, tensors=6, names=tuple("abcde")),
            "none reaches a, b, c and 2 more (5 of 6 tensors)",
        ),
        (
            GradientFinding(found="not_finite", parameter_count=9, tensors=6, names=("a",), step=2),
            "the gradient of a is not finite at step 2",
        ),
        (OverlapFinding(found="leaked", share=0.62), "62 % of the held-out data"),
        (OverlapFinding(found="some", share=0.0117), "1.2 % of the held-out data"),
        (
            DataSizeFinding(found="fewer_than_largest_batch", train_samples=1000, valid_samples=10, largest_batch=2048),
            "1,000 training and 10 held-out samples; a batch of 2,048",
        ),
        (DataSizeFinding(found="too_few", train_samples=1, valid_samples=0), "give at least 2 and 1"),
        (RaisedError(message="KeyError: 'x' (line 3 of mine.py)"), "KeyError: 'x' (line 3 of mine.py)"),
        (RaisedError(message="KeyError: 'x'", same_as="loss"), "the same error as in 'loss'"),
        (TooLarge(samples=2), "2 samples at a time need more memory"),
    ],
)
def test_the_numbers_and_names_are_in_the_sentence(finding: CheckFinding, phrase: str) -> None:
    assert phrase in text(finding)


def item(name: str, status: Literal["ok", "note", "fail"]) -> CheckItem:
    return CheckItem(name=name, status=status, finding=RaisedError(message=f"text of {name}"))


def test_lines_for_the_terminal() -> None:
    result = CheckResult(items=(item("loss", "ok"), item("seeds", "note"), item("mean or sum", "fail")))
    assert check_lines(result) == [
        "✓ loss         text of loss",
        "· seeds        text of seeds",
        "✗ mean or sum  text of mean or sum",
    ]
    assert not result.passed


def test_a_failed_check_is_why_nothing_was_trained() -> None:
    sound = [item("loss", "ok"), item("seeds", "note")]
    assert check_failed(sound) == first_failure(sound) == ""
    one = [*sound, item("gradients", "fail")]
    assert check_failed(one) == "The check of the task failed, so nothing was trained."
    assert first_failure(one) == "The check of the task failed, so nothing was trained: text of gradients."
    more = [*one, item("mean or sum", "fail")]
    assert first_failure(more).endswith(": text of gradients (1 other check failed too).")


def test_edited_files_are_named() -> None:
    assert checked_again(["a.py", "b.py"]) == "edited since the check: a.py, b.py; the task is checked again"
