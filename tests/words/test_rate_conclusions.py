from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.values import Interval
from batchlab.words.rate_conclusions import closest_rule, rate_conclusions

Study = Callable[..., Any]
RATES = (5e-4, 1e-3, 2e-3, 4e-3)


def said(study: Any, part: str) -> str:
    surface = assemble(*study).surface
    assert surface is not None
    return "".join(text for text in rate_conclusions(surface) if part in text)


def shared(synthetic_study: Study, **settings: Any) -> Any:
    return synthetic_study(
        (8, 16, 32), RATES, noise_sd=0.0, max_extensions=0, seeds=1, best_lr=1e-3, lr_exponent=1.0, **settings
    )


def test_every_sentence_is_whole_and_states_an_n(synthetic_study: Study) -> None:
    for study in (synthetic_study(), shared(synthetic_study), synthetic_study(learning_rates=(1e-3,))):
        surface = assemble(*study).surface
        assert surface is not None
        for text in rate_conclusions(surface):
            assert text.endswith(".")
            assert "n = " in text


def test_one_rate_for_all_sizes_is_compared_with_own_rates(synthetic_study: Study) -> None:
    text = said(shared(synthetic_study, batch_curvature=0.0), "With one learning rate for all sizes")
    assert "batch 8, 16 and 32, depending on the rate, would have had the lowest loss" in text
    assert "At the best rate tried at each size they differ by 0.000" in text


def test_a_sweep_at_one_rate_says_so(synthetic_study: Study) -> None:
    study = synthetic_study((8, 16, 32), (1e-3,), max_extensions=0, seeds=1)
    assert "1.0e-3" in said(study, "Every batch size ran at one learning rate only")
    assert not said(study, "With one learning rate")


def test_one_learning_rate_is_called_untuned(synthetic_study: Study) -> None:
    assert said(synthetic_study(learning_rates=(1e-3,)), "one learning rate only")


def test_the_exponent_is_a_sentence_from_three_sizes_on(synthetic_study: Study) -> None:
    exact = synthetic_study(lr_exponent=1.0, noise_sd=0.0, learning_rates=(2.5e-4, *RATES))
    text = said(exact, "scaled as")
    assert "batch^1.00 (95 % interval 1.00 to 1.00, n = 5 sizes, 5 of them interpolated)" in text
    assert "steeper than the square-root rule" in text
    assert not said(synthetic_study(sizes=(8, 16)), "scaled as")


def test_edges_are_named(synthetic_study: Study) -> None:
    text = said(synthetic_study(best_lr=1.0, max_extensions=0), "at the edge of those that trained")
    assert "batch 4, 8, 16, 32 and 64" in text


def test_a_fit_gives_its_uncertainty_in_doublings(synthetic_study: Study) -> None:
    assert " doublings (n = 3 learning rates; as many as the parabola has coefficients" in said(
        synthetic_study(), "At batch 16 a local fit"
    )
    missing = said(synthetic_study(best_lr=1.0, max_extensions=0), "no learning rate could be interpolated")
    assert "would help most" in missing


@pytest.mark.parametrize(
    ("low", "value", "high", "says"),
    [
        (
            0.8,
            0.9,
            1.0,
            "the linear rule is closest; the interval excludes keeping the learning rate and the square-root",
        ),
        (
            0.3,
            0.4,
            0.6,
            "the square-root rule is closest; the interval excludes keeping the learning rate and the linear",
        ),
        (-1.0, 0.1, 2.0, "keeping the learning rate is closest; the interval excludes none of them."),
    ],
)
def test_the_rule_that_comes_closest_is_named(low: float, value: float, high: float, says: str) -> None:
    assert says in closest_rule(Interval(value, low, high, 4))


def test_no_rule_is_judged_where_the_best_rates_are_at_the_edges(synthetic_study: Study) -> None:
    study = synthetic_study((8, 16, 32), RATES, noise_sd=0.0, max_extensions=0, seeds=1, best_lr=1.0)
    assert "n = 0 of 3 batch sizes, and 3 are needed" in said(study, "cannot be told")
