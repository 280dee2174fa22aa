"""What trackers show of a run, under the names that the study's files use."""

from __future__ import annotations

from batchlab.core.protocols import Setting
from batchlab.core.record import MetricRow, Record
from batchlab.core.spec import TrainSpec


def settings_of(spec: TrainSpec) -> dict[str, Setting]:
    """What distinguishes the runs of a study, and what they train."""
    layout = spec.layout
    return {
        "task": str(spec.workload.task),
        "global_batch_size": layout.global_batch_size,
        "micro_batch_size": layout.micro_batch_size,
        "grad_accum_steps": layout.grad_accum_steps,
        "learning_rate": spec.learning_rate,
        "seed": spec.seed,
        "token_budget": spec.token_budget,
        "sequence_length": spec.workload.sequence_length,
        "optimizer": spec.optimizer.config.name,
        "precision": spec.device.precision,
        "device": spec.device.name,
    }


def scalars_of(row: MetricRow) -> dict[str, float]:
    """Name → number of everything measured in a row; numbers of a nested section are named section/name."""
    found: dict[str, float] = {}
    for name, value in row.model_dump(exclude={"step"}, exclude_none=True).items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            if isinstance(number, int | float):
                found[f"{name}/{part}" if part else name] = float(number)
    return found


def results_of(record: Record) -> dict[str, Setting]:
    """Outcome, reason and the numbers of the result."""
    found: dict[str, Setting] = {"outcome": record.outcome.value, "reason": record.reason}
    for name, value in record.result or ():
        if isinstance(value, int | float | str) and name != "kind":
            found[name] = value
    return found
