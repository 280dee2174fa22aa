from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.report.document import build_document
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
        assert "n = " in text


def test_the_best_is_named_with_interval_and_n(found: Callable[..., Findings]) -> None:
    text = sentence(found(), "its mean validation loss is")
    assert "batch 16 at learning rate 1.0e-3" in text
    assert "n = 3 seeds" in text
    assert "4 degrees of freedom" in text


def test_one_seed_claims_no_winner(found: Callable[..., Findings]) -> None:
    findings = found(seeds=1)
    assert "n = 1, not tested: this may be noise" in sentence(findings, "had the lowest loss of 20 runs")
    sentence(
        findings,
        "No seed was repeated (n = 1), so no difference between the 5 batch sizes is distinguishable from noise",
    )
    assert not any("more than noise" in text for text in tell(findings).conclusions)


def test_within_noise_is_said_to_be_within_noise(found: Callable[..., Findings]) -> None:
    findings = found(batch_curvature=0.0, noise_sd=0.02)
    assert any("within noise of the best" in text for text in tell(findings).conclusions)
    assert not any("more than noise" in text for text in tell(findings).conclusions)


def test_clear_differences_are_said_to_be_more_than_noise(found: Callable[..., Findings]) -> None:
    findings = found(batch_curvature=0.1, noise_sd=0.001)
    assert sum("higher than the best, which is more than noise" in text for text in tell(findings).conclusions) == 2
    sentence(findings, "The other 4 batch sizes are worse by more than noise (n = 1 to 3;")


def test_undertrained_sizes_are_named(found: Callable[..., Findings]) -> None:
    assert sentence(found(token_budget=64 * 64 * 20), "shown, never judged").startswith("Batch 32 and 64 had under 50")


@pytest.mark.parametrize(("target", "verdict"), [(2.45, "was reached by batch 16"), (2.0, "was not reached")])
def test_a_target_loss_is_judged_and_its_data_named(
    found: Callable[..., Findings], target: float, verdict: str
) -> None:
    settings = {"evaluation": {"target_loss": target}}
    findings = found(
        sizes=(8, 16, 32),
        learning_rates=(5e-4, 1e-3, 2e-3, 4e-3),
        noise_sd=0.0,
        max_extensions=0,
        seeds=1,
        best_lr=1e-3,
        batch_curvature=0.1,
        lr_exponent=0.0,
        settings=settings,
    )
    text = sentence(findings, "The target loss")
    assert verdict in text
    assert "synthetic text" in text


def test_what_the_dynamics_chapter_says_is_not_said_again(found: Callable[..., Findings]) -> None:
    """Repeated data and the gap between training and validation loss."""
    findings = found(token_budget=64 * 64 * 1250)
    document = build_document(findings, tell(findings), None, None)
    for part, number in (("training data", "2 "), ("training loss", "+0.050")):
        said = [text for text in (*document.dynamics, *document.conclusions) if part in text]
        assert len(said) == 1
        assert number in said[0]


def test_nothing_finite_is_one_sentence(found: Callable[..., Findings]) -> None:
    findings = found(diverges_above=0.0)
    assert tell(findings).conclusions[0] == "None of the 20 training runs has a finite loss (diverged)."
    assert not any("lowest" in text for text in tell(findings).conclusions)


def test_a_search_that_started_from_a_law_says_so_with_rule_and_caveat(found: Callable[..., Findings]) -> None:
    text = sentence(found(settings={"sweep": {"search": "adaptive", "prior": "deepseek"}}), "The search started a")
    assert (
        "doubling below the learning rate of DeepSeek, extrapolated from other models: 0.292 · C^0.3271 tokens" in text
    )
    assert "arXiv:2401.02954" in text
    assert not any("The search started" in each for each in tell(found()).conclusions)
