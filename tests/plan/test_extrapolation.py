from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.extrapolation import Target
from batchlab.analysis.findings import Findings
from batchlab.core.errors import InputError
from batchlab.plan import TrainingPlan, format_plan, make_plan, paste_block
from batchlab.scaling import LearningRateRule, Optimum
from batchlab.words.conclusions import conclusions

Study = Callable[..., Any]


def test_a_batch_that_was_not_measured_is_extrapolated_and_every_number_says_so(findings: Findings) -> None:
    plan = make_plan(findings, target=Target(24))
    c = plan.batch_configuration
    assert (c.global_batch_size, c.token_budget) == (24, 409_600 // (24 * 64) * 24 * 64)
    measured = {row.global_batch_size: row.best.learning_rate for row in findings.surface.rows if row.best}  # type: ignore[union-attr]
    low, high = sorted((measured[16], measured[32]))
    assert low <= c.learning_rate <= high
    rate = plan.provenance["learning_rate"]
    assert rate.status == "extrapolated"
    assert "interpolated" in rate.rule
    assert rate.range
    assert plan.provenance["optimizer.beta2"].status == "extrapolated"
    assert c.optimizer.beta2 == 0.95
    assert plan.performance_targets.val_loss is None
    assert "at batch 24" in plan.confirm
    assert "extrapolated: learning_rate" in paste_block(plan)
    tomllib.loads(paste_block(plan))
    assert format_plan(plan, "torchtitan").startswith("# extrapolated")
    assert TrainingPlan.model_validate_json(format_plan(plan)) == plan


def test_another_budget_moves_batch_and_rate_with_interval_and_names_its_confirmation(findings: Findings) -> None:
    plan = make_plan(findings, target=Target(token_budget=4 * 409_600))
    c, rate = plan.batch_configuration, plan.provenance["learning_rate"]
    assert c.token_budget == 4 * 409_600
    assert findings.surface is not None
    assert findings.surface.best is not None
    assert c.global_batch_size >= findings.surface.best.global_batch_size  # B_opt rises with the budget
    assert plan.provenance["global_batch_size"].status == "extrapolated"
    assert "D^" in plan.provenance["global_batch_size"].rule
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < c.learning_rate < rate.high
    assert c.warmup_tokens == pytest.approx(4 * 40_960, rel=0.01)
    assert "8 runs at 102k" in plan.confirm
    several = replace(findings, earlier_optima=(Optimum(100_000.0, 8.0, 1e-3),))
    own = make_plan(several, target=Target(token_budget=4 * 409_600))
    assert "measured budgets" in own.provenance["global_batch_size"].rule


def test_a_wider_model_has_no_speed_and_a_lower_rate(findings: Findings) -> None:
    parameters = findings.task_info.parameter_count or 0
    plan = make_plan(findings, target=Target(parameters=4 * parameters))
    assert findings.surface is not None
    assert findings.surface.best is not None
    assert findings.surface.best.best is not None
    assert plan.hardware_calibration.measured_performance == {}
    assert plan.provenance["learning_rate"].rule.count("N^") == 1
    assert plan.batch_configuration.learning_rate < findings.surface.best.best.learning_rate
    assert "the model of" in plan.confirm


def test_an_optimum_at_an_end_of_the_axis_is_not_moved_to_another_budget(synthetic_study: Study) -> None:
    bounded = assemble(*synthetic_study(best_batch=2))
    with pytest.raises(InputError, match="smallest one tried"):
        make_plan(bounded, target=Target(token_budget=4 * 409_600))
    asked = make_plan(bounded, target=Target(8, token_budget=4 * 409_600))
    rate = asked.provenance["learning_rate"]
    assert rate.range.endswith("the best batch was the smallest tried, so B_opt may be smaller")
    assert "Nothing is extrapolated to 4 × the budget." in " ".join(conclusions(bounded))


def test_a_tied_size_at_the_end_leaves_the_interval_open_and_says_so(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study(batch_curvature=0.0005))
    batch = make_plan(findings, target=Target(token_budget=4 * 409_600)).provenance["global_batch_size"]
    assert (batch.low, batch.high) == (None, None)
    assert "no lower bound" in batch.range
    assert "no upper bound" in batch.range
    (sentence,) = (text for text in conclusions(findings) if "Extrapolated" in text)
    assert "no lower bound" in sentence
    assert "no upper bound" in sentence


def test_the_measured_interval_of_the_optimum_is_moved_with_it(synthetic_study: Study) -> None:
    sharp = assemble(*synthetic_study(best_batch=16, batch_curvature=0.02))
    batch = make_plan(sharp, target=Target(token_budget=4 * 409_600)).provenance["global_batch_size"]
    assert batch.low is not None
    assert batch.high is not None
    assert batch.low < 32 < batch.high  # 16 · 4^0.5


def test_no_exponent_of_another_optimizer_is_taken_for_granted(synthetic_study: Study) -> None:
    store = synthetic_study()
    other = replace(
        assemble(*store), task_info=assemble(*store).task_info.model_copy(update={"optimizer_family": "sgd"})
    )
    with pytest.raises(InputError, match="published for Adam"):
        make_plan(other, target=Target(token_budget=4 * 409_600))


def test_a_rule_that_was_asked_for_moves_the_best_learning_rate_even_to_a_measured_size(synthetic_study: Study) -> None:
    study = assemble(*synthetic_study(best_batch=32, batch_curvature=0.02))
    assert study.surface is not None
    assert study.surface.best is not None
    assert study.surface.best.best is not None
    best = study.surface.best.best
    plan = make_plan(study, target=Target(16, rate_rule=LearningRateRule.LINEAR))
    assert plan.batch_configuration.learning_rate == pytest.approx(best.learning_rate / 2, rel=0.01)
    assert "shown for SGD" in plan.provenance["learning_rate"].range
    with pytest.raises(InputError, match="linear rule ends at the best batch size"):
        make_plan(study, target=Target(64, rate_rule=LearningRateRule.LINEAR))
