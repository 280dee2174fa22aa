"""The devices of a plan that a calibration measured."""

from __future__ import annotations

import json
from math import inf

import pytest
from tests.plan.calibrated import SHARES, SPEEDS, calibrated

from batchlab.analysis.findings import Findings
from batchlab.plan import format_plan, make_plan
from batchlab.plan.training_plan import TrainingPlan


def test_a_plan_has_what_was_measured_and_what_follows(findings: Findings) -> None:
    plan = make_plan(calibrated(findings), 4)
    hardware, targets = plan.hardware_calibration, plan.performance_targets
    assert list(hardware.measured_performance.values()) == list(SPEEDS)
    assert [64 * share for share in hardware.workload_distribution.values()] == pytest.approx(SHARES)
    assert plan.layout.shares == SHARES
    assert hardware.all_reduce is not None
    assert hardware.all_reduce.bytes_per_second == pytest.approx(1e9)
    assert targets.step is not None
    assert targets.step.seconds == pytest.approx(0.121)
    assert targets.step.speedup == pytest.approx(0.2 / 0.121)
    assert targets.step.bound == "compute"
    assert targets.tokens_per_second == pytest.approx(plan.batch_configuration.tokens_per_step / 0.121)
    assert targets.hours == pytest.approx(plan.batch_configuration.steps * 0.121 / 3600, rel=1e-3)
    assert plan.provenance["measured_performance"].status == "measured"
    assert plan.provenance["measured_performance"].n == 5
    assert {"all_reduce", "performance_targets.step"} <= set(plan.provenance)


def test_the_configuration_is_that_of_equal_devices(findings: Findings) -> None:
    """Whatever the shares: micro-batch × accumulation × devices is the global batch in every reader."""
    c = make_plan(calibrated(findings), 4).batch_configuration
    assert c.per_gpu_batch_size * c.gradient_accumulation_steps * c.data_parallel_size == c.global_batch_size == 64


def test_the_speed_to_compare_is_the_predicted_one(findings: Findings) -> None:
    plan = make_plan(calibrated(findings), 4)
    [speed] = [step for step in plan.verification_steps if step.quantity == "tokens_per_second"]
    assert (speed.low, speed.high) == (None, plan.performance_targets.tokens_per_second)
    assert "predicted" in speed.text


def test_equal_shares_stay_equal(findings: Findings) -> None:
    assert make_plan(calibrated(findings, ()), 4).layout.shares == ()


def test_only_the_devices_and_the_batch_that_were_timed(findings: Findings) -> None:
    other = calibrated(findings)
    assert make_plan(other, 2).performance_targets.step is None
    assert make_plan(other, 2) == make_plan(findings, 2)


def test_a_link_without_a_limit_can_be_written(findings: Findings) -> None:
    plan = make_plan(calibrated(findings, seconds_per_byte=0.0), 4)
    assert plan.hardware_calibration.all_reduce is not None
    assert plan.hardware_calibration.all_reduce.bytes_per_second is None
    text = format_plan(plan, "json")
    assert str(inf).capitalize() not in text
    assert TrainingPlan.model_validate(json.loads(text)) == plan
