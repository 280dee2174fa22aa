from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.words.rate_conclusions import learning_rate_exponent
from batchlab.words.story import tell

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Callable[..., Findings]:
    def make(**settings: Any) -> Findings:
        return assemble(*synthetic_study(**settings))

    return make


def sentence(findings: Findings, part: str) -> str:
    matching = [text for text in tell(findings).conclusions if part in text]
    assert len(matching) == 1, (part, tell(findings).conclusions)
    return matching[0]


def test_every_sentence_is_whole_and_states_an_n(found: Callable[..., Findings]) -> None:
    for text in tell(found()).conclusions:
        assert text.endswith(".")
        assert any(mark in text for mark in ("n =", "n = 1", "of the other", "sizes")), text


def test_the_best_is_named_with_interval_and_n(found: Callable[..., Findings]) -> None:
    text = sentence(found(), "lowest mean validation loss")
    assert "batch 16 at learning rate 1.0e-3" in text
    assert "n = 3 seeds" in text
    assert "4 degrees of freedom" in text


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5, 1.0])
def test_the_learning_rate_exponent_is_recovered(found: Callable[..., Findings], exponent: float) -> None:
    findings = found(lr_exponent=exponent, noise_sd=0.0, learning_rates=(2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3))
    assert findings.surface is not None
    fitted = learning_rate_exponent(findings.surface)
    assert fitted is not None
    assert fitted.value.value == pytest.approx(exponent, abs=1e-6)
    assert fitted.value.n == 5


def test_no_exponent_below_three_sizes(found: Callable[..., Findings]) -> None:
    findings = found(sizes=(8, 16))
    assert findings.surface is not None
    assert learning_rate_exponent(findings.surface) is None
    assert not any("batch^" in text for text in tell(findings).conclusions)


def test_one_seed_claims_no_winner(found: Callable[..., Findings]) -> None:
    findings = found(seeds=1)
    assert "n = 1: whether that is more than noise is not known" in sentence(findings, "lowest validation loss")
    sentence(findings, "With n = 1 nothing separates the 5 batch sizes from noise")
    assert not any("more than noise explains" in text for text in tell(findings).conclusions)


def test_within_noise_is_said_to_be_within_noise(found: Callable[..., Findings]) -> None:
    findings = found(batch_curvature=0.0, noise_sd=0.02)
    assert any("Noise cannot separate batch" in text for text in tell(findings).conclusions)
    assert not any("more than noise explains" in text for text in tell(findings).conclusions)


def test_clear_differences_are_said_to_be_more_than_noise(found: Callable[..., Findings]) -> None:
    findings = found(batch_curvature=0.1, noise_sd=0.001)
    assert sum("more than noise explains" in text for text in tell(findings).conclusions) == 2
    sentence(findings, "Noise does not explain the distance of any of the other 4 batch sizes")


def test_one_learning_rate_is_called_untuned(found: Callable[..., Findings]) -> None:
    assert "one learning rate only" in sentence(found(learning_rates=(1e-3,)), "one learning rate only")


def test_edges_and_starved_sizes_are_named(found: Callable[..., Findings]) -> None:
    assert "upper bounds" in sentence(found(best_lr=1.0, max_extensions=0), "at the end of what trained")
    assert sentence(found(token_budget=64 * 64 * 20), "shown, never judged").startswith("Batch 32 and 64 had under 50")


def test_repeated_data_is_said(found: Callable[..., Findings]) -> None:
    budget = 64 * 64 * 1250
    assert "2 times" in sentence(found(token_budget=budget), "passed over its data")


def test_nothing_finite_is_one_sentence(found: Callable[..., Findings]) -> None:
    findings = found(diverges_above=0.0)
    assert tell(findings).conclusions[0] == "None of the 20 training runs has a finite loss (diverged)."
    assert not any("lowest" in text for text in tell(findings).conclusions)


def test_a_search_that_started_from_a_law_says_so_with_rule_and_doubt(found: Callable[..., Findings]) -> None:
    text = sentence(found(settings={"sweep": {"search": "adaptive", "prior": "deepseek"}}), "The search started where")
    assert "DeepSeek puts the optimum, extrapolated from other models: 0.292 · C^0.3271 tokens" in text
    assert "arXiv:2401.02954" in text
    assert not any("The search started" in each for each in tell(found()).conclusions)
