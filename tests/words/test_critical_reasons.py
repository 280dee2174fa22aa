"""Why an estimate of the critical batch size is missing or one-sided, in words."""

from __future__ import annotations

from typing import Literal

import pytest

from batchlab.analysis.critical.branches import Branch, branched_critical_batch
from batchlab.analysis.critical.noise_scale import GradientNorms, NoiseReason, NoiseScale, noise_scale
from batchlab.analysis.critical.planned_runs import plan_runs
from batchlab.analysis.critical.steps_finding import (
    LowestAtEnd,
    Misfit,
    Reason,
    StepsFinding,
    StepsReason,
    TooFewAboveOptimum,
    TooFewReached,
)
from batchlab.words.critical_reasons import branch_reason, noise_reason, settling_runs, steps_reason


def test_every_reason_of_steps_has_words_of_its_own() -> None:
    said = {steps_reason(StepsFinding("cannot_tell", reason, token_optimal=64.0)) for reason in StepsReason}
    assert len(said) == len(StepsReason)
    assert "the largest size, 64, needed the fewest samples" in said
    assert steps_reason(StepsFinding("found")) == ""


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (TooFewReached(3, 6), "3 of 6 batch sizes reached the target, and the curve needs 4"),
        (TooFewAboveOptimum(2, 128.0), "only 2 sizes at or above 128, which needed the fewest samples"),
        (LowestAtEnd(8.0), "8, an end of the sizes measured"),
        (Misfit(0.081, 0.01), "not within their noise of 1.0 %"),
    ],
)
def test_reasons_with_numbers_tell_them(reason: Reason, text: str) -> None:
    assert text in steps_reason(StepsFinding("cannot_tell", reason))


def test_a_noise_scale_says_what_it_lacks() -> None:
    overflowed = [GradientNorms((4.0, 4.0), (float("inf"), 1.0), float("nan"))] * 3
    assert "0 usable steps (3 overflowed) in 0 blocks" in noise_reason(noise_scale(overflowed))
    counts: tuple[int, int, int, float, float, Literal["fieller"]] = (20, 0, 7, 0.0, 1.0, "fieller")
    within = NoiseScale("at_least", None, 12.0, 1.0, 0.1, *counts, NoiseReason.GRADIENT_WITHIN_NOISE)
    assert noise_reason(within).endswith("so there is no upper limit")
    nothing = NoiseScale("undetermined", None, None, 1.0, 0.1, *counts, NoiseReason.GRADIENT_WITHIN_NOISE)
    assert noise_reason(nothing).endswith("Sample more steps, or larger batches")
    assert noise_reason(noise_scale([GradientNorms((4.0, 4.0), (2.0, 2.0), 2.0)] * 8)) == ""


def test_branches_say_what_they_leave_open() -> None:
    def reason(*branches: Branch) -> str:
        return branch_reason(branched_critical_batch(branches, batch=8, tolerance=0.01))

    unchanged = Branch(1, (1.0, 1.1, 1.2))
    assert reason(unchanged) == "only the unchanged batch size was run"
    assert "run larger multipliers" in reason(unchanged, Branch(2, (1.0, 1.1, 1.2)))
    undecided = reason(unchanged, Branch(2, (1.03, 1.08, 1.21)))
    assert undecided.startswith("noise hides whether 2 × 8 loses more than 0.01 nats")
    assert reason(unchanged, Branch(2, (2.0, 2.1, 2.2))) == ""


def test_runs_that_would_settle_it_are_grouped_and_name_the_command_that_trains_them() -> None:
    larger = settling_runs([*plan_runs([4.0, 8.0], "larger"), *plan_runs([4.0, 8.0], "smaller")])
    assert "batch 32 and 128 beyond the largest size; batch 1 below the smallest size" in larger
    assert larger.endswith("(batchlab critical --run)")
    repeated = settling_runs(plan_runs([4.0, 8.0, 16.0], "repeat"))
    assert "batch 4, 8 and 16 two more seeds" in repeated
    assert "--run" not in repeated
