from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.core.check import CheckItem, CheckResult, OverlapFinding
from batchlab.core.record import Outcome, Record
from batchlab.core.spec import CapacitySpec, CheckSpec, Spec, ThroughputSpec
from batchlab.words.failures import Failure, failures
from batchlab.words.story import tell

Study = Callable[..., Any]


def listed(study: Any, start: str) -> list[Failure]:
    return [failure for failure in failures(assemble(*study)) if failure.what.startswith(start)]


def test_a_sound_study_lists_nothing(synthetic_study: Study) -> None:
    assert failures(assemble(*synthetic_study())) == ()


def test_out_of_memory_is_answered_with_accumulation(synthetic_study: Study) -> None:
    (failure,) = listed(synthetic_study(out_of_memory=(64,)), "Out of memory")
    assert failure.what.count("ut of memory") == 1
    assert failure.where.startswith("batch 64 at learning rate 3.0e-4, 1.0e-3, 3.0e-3 and 1.0e-2")
    assert "2 micro-batches of at most 48 give the same global batch" in failure.remedy
    assert "bf16" in failure.remedy


def test_divergence_is_answered_with_a_rate_that_trained(synthetic_study: Study) -> None:
    diverged = listed(synthetic_study(diverges_above=3.0), "Diverged")
    with_64 = next(failure for failure in diverged if " 64 at learning rate" in failure.where)
    assert "Stay at or below 3.0e-3, which trained at " in with_64.remedy
    assert "10 steps now)" in with_64.remedy
    (alone,) = listed(synthetic_study(sizes=(64,), diverges_above=0.0), "Diverged")
    assert "Every learning rate from 3.0e-4 up diverged at this size" in alone.remedy
    assert "warmup_fraction above 0.1 (10 steps now)" in alone.remedy


def test_sizes_that_diverged_alike_are_one_failure(synthetic_study: Study) -> None:
    (failure,) = listed(synthetic_study(diverges_above=1e-9), "Diverged")
    assert failure.where == ("batch 4, 8, 16, 32 and 64 at learning rate 3.0e-4, 1.0e-3, 3.0e-3 and 1.0e-2 (20 runs)")
    assert "diverged at these sizes" in failure.remedy
    assert "(160, 80, 40, 20 and 10 steps now)" in failure.remedy


def test_a_failed_run_keeps_its_reason(synthetic_study: Study) -> None:
    (failure,) = listed(synthetic_study(failed=(8,)), "The run failed")
    assert "RuntimeError: the task raised an error in step 3." in failure.what
    assert "log.txt" in failure.remedy


def test_undertrained_sizes_are_told_the_budget_they_need(synthetic_study: Study) -> None:
    (failure,) = listed(synthetic_study(token_budget=64 * 64 * 20), "Undertrained")
    assert f"--token-budget {50 * 64 * 64}" in failure.remedy


def test_undertrained_sizes_without_a_warm_up_need_enough_steps(synthetic_study: Study) -> None:
    experiment, *rest = synthetic_study(token_budget=64 * 64 * 20)
    flat = experiment.schedule.model_copy(update={"warmup_fraction": 0.0, "min_warmup_steps": 0})
    (failure,) = listed((experiment.model_copy(update={"schedule": flat}), *rest), "Undertrained")
    assert f"--token-budget {50 * 64 * 64}" in failure.remedy


def test_falling_speed_names_the_host_memory_fallback(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    slowed: list[tuple[Any, Record]] = []
    for spec, record in records:
        if isinstance(spec, ThroughputSpec) and spec.layout.global_batch_size == 64:
            slow = {"tokens_per_second": 9e3, "tokens_per_second_blocks": (9e3,)}
            record = record.model_copy(update={"result": record.result.model_copy(update=slow)})
        slowed.append((spec, record))
    (failure,) = listed((experiment, task_info, slowed, rows, decisions), "More than 20 % slower")
    assert failure.where == "batch 64"
    assert "host-memory fallback" in failure.remedy


def test_batch_statistics_and_failed_checks_are_explained(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study(out_of_memory=(64,))
    result = CheckResult(
        items=(CheckItem(name="data", status="fail", finding=OverlapFinding(found="leaked", share=0.62)),),
        sample_independent=False,
        mixing_layer="bn1",
    )
    spec = CheckSpec(workload=records[0][0].workload)
    checked = [(spec, Record(run_id="check-1", outcome=Outcome.COMPLETED, result=result)), *records]
    findings = assemble(experiment, task_info, checked, rows, decisions)
    assert not findings.sample_independent
    whats = [failure.what for failure in tell(findings).failures]
    assert any("BatchNorm" in what for what in whats)
    assert "The check 'data' failed." in whats
    (memory,) = [failure for failure in tell(findings).failures if failure.what.startswith("Out of memory")]
    assert "cannot be split" in memory.remedy
    assert "Accumulate" not in memory.remedy


def with_record(study: Any, more: tuple[Spec, Record]) -> Findings:
    experiment, task_info, records, *rest = study
    return assemble(experiment, task_info, [*records, more], *rest)


def test_probes_that_found_the_limit_are_no_failures_but_broken_ones_are(synthetic_study: Study) -> None:
    study = synthetic_study()
    spec = next(spec for spec, _ in study[2] if isinstance(spec, CapacitySpec))
    full = (spec, Record(run_id="c", outcome=Outcome.OUT_OF_MEMORY))
    broken = (spec, Record(run_id="c", outcome=Outcome.FAILED, reason="ImportError: no module."))
    assert failures(with_record(study, full)) == ()
    (failure,) = failures(with_record(study, broken))
    assert failure.what == "Failed. ImportError: no module."
    assert failure.where == "capacity (c)"
