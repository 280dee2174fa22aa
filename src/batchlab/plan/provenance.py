"""Where the numbers of a plan come from that was measured: status, repetitions, and a source for every number."""

from __future__ import annotations

from batchlab.analysis.calibration import Calibration
from batchlab.analysis.capacity.proof import proof_of
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow
from batchlab.analysis.verdict import Recommendation
from batchlab.core.batch import BatchLayout
from batchlab.plan.training_plan import Provenance, Status
from batchlab.words.calibration import (
    ALL_REDUCE_SOURCE,
    PREDICTED_HOURS,
    PREDICTED_SPEED,
    PREDICTED_STEP,
    describe_measured_speeds,
    describe_shares,
)
from batchlab.words.capacity_reasons import describe_proof
from batchlab.words.plan import (
    COMPUTED,
    SETTING,
    describe_batch,
    describe_best_warmup,
    describe_beta2,
    describe_devices,
    describe_layout,
    describe_length,
    describe_loss,
    describe_own_optimizer,
    describe_rate,
    describe_untested,
    describe_warmup,
)


def measured_provenance(
    findings: Findings, row: BatchRow, recommended: Recommendation | None, layout: BatchLayout, speed: Provenance
) -> dict[str, Provenance]:
    """An entry for every number of a plan at the measured batch size of `row`, on any number of devices.

    `speed` is the entry of one device's tokens/s in this layout. `recommended` says why this size: None where it was
    asked for.
    """
    experiment, one = findings.experiment, layout.data_parallel_size == 1
    n = len(row.best.losses) if row.best else 0
    adam, own, rule = (
        experiment.optimizer.is_adam,
        experiment.optimizer.name == "task",
        experiment.optimizer.across_batch,
    )
    beta2 = describe_beta2(experiment.optimizer, experiment.reference_batch_size)
    return {
        "global_batch_size": Provenance(
            status="measured", source=describe_batch(row, recommended, experiment.unit), n=n
        ),
        "learning_rate": Provenance(status="measured", source=describe_rate(row), n=n),
        "micro_batch_size": Provenance(
            status="measured" if one else "extrapolated", source=describe_layout(findings.memory, layout)
        ),
        "grad_accum_steps": _computed("grad_accum_steps", "measured" if one else "computed"),
        "data_parallel_size": Provenance(
            status="measured" if one else "given", source=describe_devices(experiment.per_device(layout))
        ),
        "tokens_per_step": _computed("tokens_per_step"),
        "token_budget": Provenance(status="measured", source=describe_length(findings), n=len(findings.runs)),
        "steps": _computed("steps"),
        "warmup_tokens": _of_warmup(findings, row, n),
        "warmup_steps": _computed("warmup_steps"),
        "warmup_epochs": _computed("warmup_epochs"),
        "training_samples": _computed("training_samples", "measured"),
        "schedule": Provenance(status="given", source=SETTING),
        "optimizer": Provenance(status="given", source=describe_own_optimizer(rule) if own else SETTING),
        **({"optimizer.beta2": Provenance(status="computed", source=beta2)} if adam else {}),
        "measured_performance": speed if speed.status == "given" else speed.model_copy(update={"status": "measured"}),
        "workload_distribution": _computed("workload_distribution"),
        "performance_targets.val_loss": Provenance(
            status="measured" if one else "computed", source=describe_loss(row, layout), n=n
        ),
        "performance_targets.tokens_per_second": _computed("performance_targets.tokens_per_second", speed.status),
        "performance_targets.hours": _computed(
            "performance_targets.hours", "extrapolated" if speed.status == "extrapolated" else "computed"
        ),
    }


def calibrated_provenance(found: Calibration) -> dict[str, Provenance]:
    """Entries of what batchlab calibrate measured, and of what follows from it."""
    n = min(worker.tokens_per_second.n for worker in found.workers)
    return {
        "measured_performance": Provenance(status="measured", source=describe_measured_speeds(found), n=n),
        "workload_distribution": Provenance(status="computed", source=describe_shares(found)),
        "all_reduce": Provenance(status="measured", source=ALL_REDUCE_SOURCE, n=found.all_reduce.repeats),
        "performance_targets.step": Provenance(status="computed", source=PREDICTED_STEP),
        "performance_targets.tokens_per_second": Provenance(status="computed", source=PREDICTED_SPEED),
        "performance_targets.hours": Provenance(status="computed", source=PREDICTED_HOURS),
    }


def _of_warmup(findings: Findings, row: BatchRow, n: int) -> Provenance:
    tried = findings.warmups.at(row.global_batch_size) if findings.warmups else None
    if tried is None or (tried.taken,) == findings.experiment.warmup_fractions:
        schedule = findings.schedule_at(row.global_batch_size)
        return Provenance(status="given", source=describe_warmup(schedule))
    return Provenance(status="measured", source=describe_best_warmup(tried), n=n)


def _computed(name: str, status: Status = "computed") -> Provenance:
    return Provenance(status=status, source=COMPUTED[name])


def with_proof(findings: Findings, layout: BatchLayout, entry: Provenance) -> Provenance:
    """The entry with what is known of the layout's memory beyond its first steps."""
    proof = proof_of(layout, findings.runs, findings.rechecks)
    if proof is None:
        return entry.model_copy(update={"source": describe_untested(entry.source)})
    status = "measured" if layout.data_parallel_size == 1 and proof.fits else entry.status
    return entry.model_copy(
        update={"source": f"{entry.source}; {describe_proof(proof)}", "status": status, "n": proof.runs}
    )
