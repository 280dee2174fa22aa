from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.values import AllUndertrained, FitProblem, NoBest, NoFiniteLoss, NoFit
from batchlab.core.record import Outcome
from batchlab.words.sweep import describe_no_best, describe_no_fit, describe_row, no_answer

Study = Callable[..., Any]


@pytest.mark.parametrize(
    ("no_best", "text"),
    [
        (NoFiniteLoss(8, (Outcome.DIVERGED,)), "None of the 8 training runs has a finite loss (diverged)."),
        (
            NoFiniteLoss(2, (Outcome.DIVERGED, Outcome.OUT_OF_MEMORY)),
            "None of the 2 training runs has a finite loss (diverged or out of memory).",
        ),
        (
            AllUndertrained(3),
            "All 3 batch sizes with a finite loss are undertrained (under 50 steps, or under 5 warm-up steps): use a "
            "larger token budget or smaller batches.",
        ),
    ],
)
def test_why_there_is_no_best_is_one_sentence(no_best: NoBest, text: str) -> None:
    assert describe_no_best(no_best) == text


def test_no_answer_before_the_first_run(synthetic_study: Study) -> None:
    assert no_answer(assemble(*synthetic_study(keep=0))) == "No training run has finished."


@pytest.mark.parametrize(
    ("settings", "size", "text"),
    [
        ({}, 16, ""),
        ({"learning_rates": (1e-3,)}, 16, "only one learning rate tried"),
        ({"out_of_memory": (64,)}, 64, "out of memory"),
        ({"token_budget": 64 * 64 * 20}, 64, "undertrained: 20 steps at most"),
        ({"best_lr": 1.0, "max_extensions": 0}, 16, "the best learning rate is the highest tried"),
        ({"diverges_above": 3.0}, 32, "the next learning rate, 1.0e-2, diverged"),
    ],
)
def test_what_limits_a_row(synthetic_study: Study, settings: dict[str, Any], size: int, text: str) -> None:
    surface = assemble(*synthetic_study(**settings)).surface
    assert surface is not None
    (row,) = [row for row in surface.rows if row.global_batch_size == size]
    assert describe_row(row) == text


@pytest.mark.parametrize(
    ("no_fit", "text"),
    [
        (NoFit(FitProblem.TOO_FEW, 1), "1 learning rate has a finite loss, and a fit needs 3"),
        (NoFit(FitProblem.AT_EDGE, 4), "the best learning rate is at the edge of those with a finite loss"),
        (NoFit(FitProblem.NOT_CONVEX, 4), "the loss is not convex around the best learning rate"),
        (NoFit(FitProblem.OUTSIDE, 4, 1.2), "the fitted best is outside the learning rates tried"),
        (NoFit(FitProblem.TOO_FAR, 4, 1.66), "the fitted best is 1.7 doublings from the best learning rate tried"),
    ],
)
def test_why_nothing_was_interpolated(no_fit: NoFit, text: str) -> None:
    assert describe_no_fit(no_fit) == text
