"""What is known of a layout after its first steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.capacity.proof import Recheck, proof_of, rechecks
from batchlab.core.batch import lay_out
from batchlab.core.record import CapacityResult, Outcome, Record
from batchlab.core.spec import CapacitySpec, Spec
from batchlab.plan import make_plan

Study = Callable[..., Any]


def recheck_record(spec: CapacitySpec, outcome: Outcome, reason: str = "") -> tuple[Spec, Record]:
    fits = outcome is Outcome.COMPLETED
    result = CapacityResult(micro_batch_size=spec.micro_batch_size, fits=fits, steps=50 if fits else 0)
    return spec, Record(run_id=f"m{spec.micro_batch_size}", outcome=outcome, reason=reason, result=result)


def test_the_sweep_has_proved_what_it_recommends(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    assert found.recommended is not None
    proof = proof_of(found.recommended.layout, found.runs, ())
    assert proof is not None
    assert (proof.fits, proof.recheck) == (True, None)
    assert proof.steps >= 50
    assert proof.runs == sum(
        r.layout == found.recommended.layout and r.outcome.value == "completed" for r in found.runs
    )
    assert "whole steps ended within memory" in make_plan(found).provenance["micro_batch_size"].source


def test_fewer_than_fifty_steps_prove_nothing(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(token_budget=64 * 64 * 20))
    undertrained = next(run for run in found.runs if run.global_batch_size == 64)
    assert undertrained.steps == 20
    assert proof_of(undertrained.layout, found.runs, ()) is None


def test_a_run_made_for_it_proves_what_was_not_trained(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    found = assemble(experiment, task_info, records, rows, decisions)
    wanted = lay_out(40, 24, sequence_length=64)
    assert proof_of(wanted, found.runs, ()) is None
    workload = next(spec.workload for spec, _ in records)
    spec = CapacitySpec(workload=workload, micro_batch_size=20, grad_accum_steps=2, steps=50)
    for outcome, fits in ((Outcome.COMPLETED, True), (Outcome.OUT_OF_MEMORY, False)):
        checked = rechecks([recheck_record(spec, outcome, "no memory left")])
        assert checked == (Recheck(20, 2, fits, "no memory left"),)
        proof = proof_of(wanted, found.runs, checked)
        assert proof is not None
        assert proof.fits is fits
        assert (proof.steps, proof.runs, proof.recheck) == (50, 1, checked[0])
    assert rechecks([recheck_record(spec.model_copy(update={"steps": 3}), Outcome.COMPLETED)]) == ()
    assert rechecks([recheck_record(spec, Outcome.FAILED)]) == ()


def test_a_plan_that_did_not_fit_warns(synthetic_study: Study) -> None:
    """64 devices run one sample each, and no training run had micro-batches of one."""
    experiment, task_info, records, rows, decisions = synthetic_study(
        batch_curvature=0.0005, best_batch=64, best_lr=3e-3
    )
    plan = make_plan(assemble(experiment, task_info, records, rows, decisions), devices=64)
    layout = plan.batch_configuration.layout
    spec = CapacitySpec(
        workload=records[0][0].workload,
        micro_batch_size=layout.micro_batch_size,
        grad_accum_steps=layout.grad_accum_steps,
        steps=50,
    )
    failed = recheck_record(spec, Outcome.OUT_OF_MEMORY, "no memory left")
    again = make_plan(assemble(experiment, task_info, [*records, failed], rows, decisions), devices=64)
    assert "not yet run for 50 steps" in plan.provenance["micro_batch_size"].source
    assert [warning for warning in again.warnings if warning not in plan.warnings] == [
        "micro-batch 1: 50 whole steps run for this plan did not fit: no memory left"
    ]
