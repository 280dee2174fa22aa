"""How the report, the plan and the terminal say where an extrapolated number comes from."""

from __future__ import annotations

import math

import pytest

from batchlab.core.batch import Unit
from batchlab.core.experiment import AcrossBatch
from batchlab.scaling import (
    LAWS,
    CellRuns,
    LearningRateRule,
    Optimum,
    PairOfRuns,
    Rule,
    Scaled,
    Scaling,
    SmallStudy,
    beta2_by_half_life,
    beta_by_sde,
    learning_rate_at,
    learning_rate_between,
    optimum_at_budget,
    optimum_at_size,
    warmup_by_tokens,
    weight_decay_by_timescale,
)
from batchlab.scaling.rules import Chained, LowestLoss, Quantity
from batchlab.words.scaling import (
    describe_batch_interval,
    describe_confirmation,
    describe_formula,
    describe_law_caveat,
    describe_range,
    describe_rule,
    describe_source,
)

ONE = [Optimum(1e9, 64, 1e-3, 1e8)]
TWO = [Optimum(1e8, 20, 1e-3, 1e8), Optimum(1.6e9, 80, 2e-3, 1e8)]


def rule_of(answer: Scaling) -> Rule:
    assert isinstance(answer, Scaled), answer
    return answer.rule


def test_a_learning_rate_at_another_batch() -> None:
    rule = rule_of(learning_rate_at(1e-3, 64, 128, best_batch_size=256))
    assert (
        describe_rule(rule) == "lr_max/(1 + B_opt/B) up to B_opt = 256, the cube root of its rise above; batch 64 → 128"
    )
    assert "1812.06162" in describe_source(rule)
    assert "2503.04715" in describe_source(rule)
    assert describe_range(rule) == (
        "batch 8 to 512, same model and budget; tested with beta2, epsilon, weight decay and warm-up steps fixed"
    )
    follows = learning_rate_at(1e-3, 8, 64, best_batch_size=1e6, across_batch=AcrossBatch.HALF_LIFE)
    assert describe_range(rule_of(follows)).endswith("beta2 and epsilon follow the batch, where the rise was slower")
    root = learning_rate_at(1e-3, 64, 128, LearningRateRule.SQUARE_ROOT, best_batch_size=256)
    assert describe_range(rule_of(root)).endswith("without weight decay, here they are fixed")


@pytest.mark.parametrize("rule", LearningRateRule)
def test_every_learning_rate_rule_has_words(rule: LearningRateRule) -> None:
    answer = rule_of(learning_rate_at(1e-3, 64, 128, rule, best_batch_size=256))
    assert describe_rule(answer).endswith("; batch 64 → 128")
    assert describe_source(answer)


def test_between_measured_sizes() -> None:
    rule = rule_of(learning_rate_between({64: 1e-3, 256: 4e-3}, 128))
    assert describe_rule(rule) == "interpolated between the tuned learning rates of batch 64 and 256"
    assert (describe_source(rule), describe_range(rule)) == ("this study", "batch 64 to 256")
    same = rule_of(learning_rate_at(1e-3, 64, 64))
    assert describe_rule(same) == "the same batch size: nothing to extrapolate"


def test_one_measured_budget_names_the_published_exponents() -> None:
    moved = optimum_at_budget(ONE, 4e9)
    batch, rate = rule_of(moved.best_batch_size), rule_of(moved.learning_rate)
    assert describe_rule(batch) == "B_opt ∝ D^0.50 [0.30, 0.70], the published exponent from the optimum at 1B"
    assert describe_source(batch).startswith("published exponents 0.33 (DeepSeek-AI 2024, of compute), ")
    assert "this study" not in describe_source(batch)
    assert "the sign is open" not in describe_source(batch)
    assert describe_source(rate).endswith("the sign is open")
    assert describe_range(batch) == "D from 33.3M to 30B"


def test_two_measured_budgets_are_named_with_their_own_exponent() -> None:
    rule = rule_of(optimum_at_budget(TWO, 1.6e10).best_batch_size)
    assert "0.50 from 2 measured budgets alone" in describe_rule(rule)
    assert describe_source(rule).startswith("this study, 100M and 1.6B, weighed against published exponents")


def test_another_width() -> None:
    sizes = [Optimum(1e9, 64, 1e-3, 1e7), Optimum(1e9, 64, 1e-3 / 4, 1e9)]
    assert "−0.30 from 2 measured model sizes alone" in describe_rule(
        rule_of(optimum_at_size(sizes, 1e10).learning_rate)
    )
    mup = rule_of(optimum_at_size(ONE, 4e8, mup=True).learning_rate)
    assert describe_source(mup) == "published exponent 0 (Yang et al. 2022, µP, over width)"


def test_a_law_alone() -> None:
    moved = optimum_at_budget([], 1e10, parameters=3e8, sequence_length=2048)
    batch, rate = rule_of(moved.best_batch_size), rule_of(moved.learning_rate)
    assert describe_rule(batch) == "Step Law: 0.58 · D^0.571 tokens"
    assert describe_rule(rate) == "Step Law: 1.79 · N^−0.713 · D^0.307"
    assert describe_source(batch) == "Li et al. 2025, arXiv:2503.04715"
    assert describe_range(batch).startswith("tested on 4B to 100B tokens of text; ")
    assert "contested" in describe_range(batch)


def test_every_law_has_its_formula_and_its_caveat() -> None:
    texts = {law.name: describe_formula(law.batch_tokens, Quantity.BATCH_SIZE) for law in LAWS}
    assert texts == {
        "Power Lines": "0.0306 · D^0.383 sequences of 2,048 tokens",
        "Step Law": "0.58 · D^0.571 tokens",
        "DeepSeek": "0.292 · C^0.3271 tokens, C = 6·N·D",
    }
    assert all(map(describe_law_caveat, LAWS))


def test_time_constants() -> None:
    beta2 = rule_of(beta2_by_half_life(0.99, 4))
    assert describe_rule(beta2) == "half-life in tokens held: 0.99^4, within 0.95 to 0.9999"
    assert describe_range(beta2) == "beta2 from 0.95 to 0.9999; it is kept at these ends"
    assert describe_rule(rule_of(beta_by_sde(0.95, 4))) == "1 − κ(1 − beta) with κ = 4"
    decay = rule_of(weight_decay_by_timescale(0.1, 64, 128, learning_rate_ratio=2, budget_ratio=16))
    assert describe_rule(decay) == ("timescale in tokens held: × 2 (batch) ÷ 2 (learning rate) ÷ 16^0.47 (budget)")
    assert "not checked by us" in describe_source(decay)
    assert describe_range(rule_of(warmup_by_tokens(1e6, 8192))) == "at least 5 steps of warm-up"


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (16.0, 90.0, "near 32 [16, 90]"),
        (0.0, 90.0, "near 32 (at most 90)"),
        (16.0, math.inf, "near 32 (at least 16)"),
        (0.0, math.inf, "near 32"),
    ],
)
def test_a_batch_size_without_a_bound_has_no_interval_there(low: float, high: float, says: str) -> None:
    assert describe_batch_interval(Scaled(32.0, LowestLoss(Quantity.BATCH_SIZE, 4, 64), low, high)) == says


def test_rules_one_after_the_other_are_both_named() -> None:
    rule = Chained(LowestLoss(Quantity.BATCH_SIZE, 4, 64), LowestLoss(Quantity.LEARNING_RATE, 4, 64))
    assert describe_rule(rule) == (
        "the batch size with the lowest mean loss of those tried; then the best learning rate tried there"
    )
    assert describe_source(rule) == "this study; this study"
    assert describe_range(rule) == "batch 4 to 64; batch 4 to 64"


def test_what_would_confirm() -> None:
    assert describe_confirmation(CellRuns(1e9, 128, (2e-3, 1e-3)), Unit.TOKENS) == (
        "2 runs of 1B tokens at batch 128, learning rate 2.0e-3 and 1.0e-3: confirmed if no measured cell beats the "
        "first by more than noise"
    )
    assert describe_confirmation(PairOfRuns(6.4e9, 160, 2.1e-3, TWO[1]), Unit.TOKENS) == (
        "2 runs of 6.4B tokens: batch 160 at learning rate 2.1e-3, and batch 80 at learning rate 2.0e-3 as measured at "
        "1.6B: confirmed if the first is better"
    )
    assert describe_confirmation(SmallStudy(1024, 8, 1.2), Unit.SAMPLES) == (
        "a study of 8 runs at 1,024 samples around batch 8 and learning rate 1.2, 8,192 samples in all: it measures "
        "how the optimum moves with the budget"
    )
    assert "with the model of 40M parameters" in describe_confirmation(SmallStudy(1024, 8, 1.2, 4e7), Unit.SAMPLES)
