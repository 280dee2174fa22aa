from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchlab.analysis.findings import Findings
from batchlab.plan import make_plan

Study = Callable[..., Any]


def test_every_number_names_its_source(findings: Findings) -> None:
    for devices in (1, 8):
        plan = make_plan(findings, devices=devices)
        numbers = set(type(plan.batch_configuration).model_fields) - {
            "unit",
            "sequence_length",
            "precision",
            "compile",
            "per_gpu_batch_size",
            "total_batch_size",
            "gradient_accumulation_steps",
        }
        assert numbers <= set(plan.provenance)
        assert all(entry.source for entry in plan.provenance.values())


def test_repetitions_stand_beside_what_was_measured(findings: Findings) -> None:
    plan = make_plan(findings)
    assert findings.surface is not None
    (row,) = [row for row in findings.surface.rows if row.global_batch_size == 64]
    assert row.best is not None
    for name in ("global_batch_size", "learning_rate", "performance_targets.val_loss"):
        assert (plan.provenance[name].status, plan.provenance[name].n) == ("measured", len(row.best.losses))
    assert plan.provenance["token_budget"].n == len(findings.runs)
    assert plan.provenance["optimizer.beta2"].status == "computed"


def test_more_devices_are_not_measured(findings: Findings) -> None:
    entries = make_plan(findings, devices=8).provenance
    assert {
        name: entries[name].status for name in ("micro_batch_size", "performance_targets.hours", "data_parallel_size")
    } == {
        "micro_batch_size": "extrapolated",
        "performance_targets.hours": "extrapolated",
        "data_parallel_size": "given",
    }
    assert entries["performance_targets.val_loss"].status == "computed"
    assert entries["grad_accum_steps"].status == "computed"
