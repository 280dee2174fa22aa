from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.extrapolation import Target
from batchlab.analysis.findings import Findings
from batchlab.core.check import CheckResult
from batchlab.core.command import Command
from batchlab.core.errors import InputError
from batchlab.core.record import Outcome, Record
from batchlab.core.spec import CheckSpec
from batchlab.plan import make_plan
from batchlab.words.unknown import unknown

Study = Callable[..., Any]


def test_one_device_is_what_was_measured(findings: Findings) -> None:
    plan = make_plan(findings)
    c = plan.batch_configuration
    assert (c.micro_batch_size, c.grad_accum_steps, c.data_parallel_size, c.global_batch_size) == (32, 2, 1, 64)
    assert (c.per_gpu_batch_size, c.gradient_accumulation_steps, c.total_batch_size) == (32, 2, 64)
    assert (c.tokens_per_step, c.token_budget, c.steps) == (4096, 409_600, 100)
    assert (c.warmup_tokens, c.warmup_steps) == (40_960, 10)
    assert c.learning_rate == 3e-3
    assert c.optimizer.beta2 == 0.95  # kept from 0.95 down
    assert plan.made_from.study == "synthetic"
    assert plan.made_from.run_ids
    assert set(plan.made_from.run_ids) <= {run.run_id for run in findings.runs}
    assert plan.provenance["learning_rate"].status == "measured"
    assert plan.provenance["micro_batch_size"].status == "measured"
    assert plan.provenance["measured_performance"].status == "measured"
    assert plan.hardware_calibration.measured_performance == {"worker-0": pytest.approx(60_000 * 64 / 70)}
    assert plan.performance_targets.hours == pytest.approx(409_600 / (60_000 * 64 / 70) / 3600)
    assert plan.unknown == unknown(findings)


@pytest.mark.parametrize("devices", [1, 2, 4, 8, 16, 32, 64])
def test_the_global_batch_and_rate_stay_on_any_number_of_devices(findings: Findings, devices: int) -> None:
    plan = make_plan(findings, devices=devices)
    c = plan.batch_configuration
    assert c.micro_batch_size * c.grad_accum_steps * c.data_parallel_size == c.global_batch_size == 64
    assert c.learning_rate == 3e-3
    assert c.micro_batch_size <= 48
    shares = plan.hardware_calibration.workload_distribution
    assert len(shares) == devices
    assert sum(shares.values()) == pytest.approx(1)
    assert plan.provenance["measured_performance"].status == "measured"
    assert list(plan.hardware_calibration.measured_performance) == ["worker-0"]
    assert plan.performance_targets.tokens_per_second == pytest.approx(
        devices * plan.hardware_calibration.measured_performance["worker-0"]
    )
    if devices > 1:
        assert plan.provenance["performance_targets.tokens_per_second"].status == "extrapolated"
        assert plan.provenance["micro_batch_size"].status == "extrapolated"
        assert plan.provenance["performance_targets.hours"].status == "extrapolated"


@pytest.mark.parametrize(
    ("devices", "says"),
    [(3, "use 2 or 4 devices"), (65, "at most 64 devices"), (0, "at least 1"), (63, "use 32 or 64 devices")],
)
def test_devices_that_cannot_share_the_batch(findings: Findings, devices: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_plan(findings, devices=devices)


def test_another_measured_batch_has_its_own_rate_and_beta2(findings: Findings) -> None:
    plan = make_plan(findings, target=Target(8))
    assert plan.batch_configuration.global_batch_size == 8
    assert plan.batch_configuration.learning_rate == 1e-3
    assert plan.batch_configuration.optimizer.beta2 == pytest.approx(0.95**0.5)


@pytest.mark.parametrize("settings", [{"diverges_above": 0.0}, {"keep": 0}, {"token_budget": 64 * 64}])
def test_no_plan_without_an_answer(synthetic_study: Study, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no plan because the study has no answer"):
        make_plan(assemble(*synthetic_study(**settings)))


def test_an_undertrained_batch_is_not_planned_for(synthetic_study: Study) -> None:
    with pytest.raises(InputError, match="under 50 steps"):
        make_plan(assemble(*synthetic_study(token_budget=64 * 64 * 20)), target=Target(64))


def test_a_model_that_mixes_samples_stays_on_one_device(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    check = CheckSpec(workload=records[0][0].workload)
    result = CheckResult(items=(), sample_independent=False)
    records = [*records, (check, Record(run_id="c", outcome=Outcome.COMPLETED, result=result))]
    findings = assemble(experiment, task_info, records, rows, decisions)
    make_plan(findings)
    with pytest.raises(InputError, match="mixes the samples"):
        make_plan(findings, devices=2)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (Target(2048), "steps of a budget"),
        (Target(token_budget=1000 * 409_600), "nothing is extrapolated further than 30"),
        (Target(parameters=10**15), "nothing is extrapolated further than 30"),
    ],
)
def test_beyond_the_rules_nothing_is_planned(findings: Findings, target: Target, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_plan(findings, target=target)


def test_a_batch_far_above_the_best_is_not_planned(synthetic_study: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="8 ×"):
        make_plan(assemble(*synthetic_study(batch_curvature=0.02)), target=Target(1024, 20 * 409_600))


def test_a_command_on_several_devices_is_planned_per_device(findings: Findings) -> None:
    """A study of a script counts the devices that it starts as one."""
    run = "torchrun --nproc-per-node 2 train.py --batch {micro_batch_size} --steps {steps}"
    command = Command.model_validate({"run": run, "devices": 2, "metrics": {"val_loss": "loss"}})
    ran = replace(findings, experiment=findings.experiment.model_copy(update={"command": command}))
    one, two = make_plan(findings), make_plan(ran)
    there = one.batch_configuration
    here = two.batch_configuration
    assert (here.data_parallel_size, here.micro_batch_size) == (2, there.micro_batch_size // 2)
    assert (here.global_batch_size, here.grad_accum_steps) == (there.global_batch_size, there.grad_accum_steps)
    assert sum(two.hardware_calibration.measured_performance.values()) == pytest.approx(
        sum(one.hardware_calibration.measured_performance.values())
    )
    assert f"--batch {here.micro_batch_size} " in two.command
