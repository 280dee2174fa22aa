"""outcomes.csv and results.csv: one line per finished run, which any program can read.

outcomes.csv holds only what a repetition on the same machine reproduces to the bit: no seconds and no bytes, and floats
in the shortest form that parses to the same value. results.csv adds what was measured.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from batchlab.core.batch import Unit
from batchlab.core.record import CapacityResult, Record, ThroughputResult, TrainResult, perplexity
from batchlab.core.spec import CapacitySpec, Spec, ThroughputSpec, TrainSpec, WorkersSpec

Row = dict[str, Any]

_LAYOUT = (
    "global_batch_size",
    "micro_batch_size",
    "grad_accum_steps",
    "data_parallel_size",
    "sequence_length",
    "unit",
    "tokens_per_step",
)
_DEVICE = ("device", "precision", "compile", "threads")
_TRAINING = ("learning_rate", "seed", "token_budget", "schedule", "warmup_fraction", "optimizer", "batch_ratio")
_LOSSES = (
    "steps",
    "tokens",
    "epochs",
    "undertrained",
    "final_train_loss",
    "val_loss",
    "best_val_loss",
    "perplexity",
    "final_grad_norm",
    "clipped_fraction",
)
_MEASURED = (
    "seconds",
    "step_seconds",
    "warmup_seconds",
    "tokens_per_second",
    "peak_bytes",
    "measured",
    "peak_in_use_bytes",
)

OUTCOME_COLUMNS = ("run_id", *_LAYOUT, *_TRAINING, *_DEVICE, *_LOSSES, "outcome")
RESULT_COLUMNS = (
    *("kind", "run_id", *_LAYOUT, *_TRAINING, *_DEVICE),
    *(*_LOSSES, "fits", *_MEASURED, "memory_limit", "outcome", "reason", "attempts", "resumed", "repaired_lines"),
)

_KINDS = ("capacity", "throughput", "train")


def outcomes_csv(runs: Sequence[tuple[Spec, Record]]) -> str:
    """Training runs only, sorted by batch size, learning rate, warm-up and seed."""
    return _csv(OUTCOME_COLUMNS, [row for row in _rows(runs) if row["kind"] == "train"])


def results_csv(runs: Sequence[tuple[Spec, Record]]) -> str:
    """Capacity probes, throughput measurements and training runs."""
    return _csv(RESULT_COLUMNS, _rows(runs))


def _rows(runs: Sequence[tuple[Spec, Record]]) -> list[Row]:
    rows = [_row(spec, record) for spec, record in runs if spec.kind in _KINDS]
    return sorted(rows, key=_position)


def _position(row: Row) -> tuple[int, int, float, float, int, str]:
    batch, rate, warmup = (row.get(name, 0.0) for name in ("global_batch_size", "learning_rate", "warmup_fraction"))
    return _KINDS.index(row["kind"]), batch, rate, warmup, row.get("seed", 0), row["run_id"]


def _row(spec: Spec, record: Record) -> Row:
    device = spec.device
    row: Row = {
        "kind": spec.kind,
        "run_id": record.run_id,
        "unit": spec.workload.unit.value,
        "device": device.name,
        "precision": device.precision,
        "compile": device.compile,
        "threads": device.threads,
        "memory_limit": device.memory_limit,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "attempts": record.attempts,
    }
    match spec:
        case TrainSpec() | ThroughputSpec() | WorkersSpec():
            layout = spec.layout
            row |= {name: getattr(layout, name) for name in _LAYOUT if name != "unit"}
        case CapacitySpec():
            sequence_length = spec.workload.sequence_length
            batch = spec.micro_batch_size * spec.grad_accum_steps
            row |= {
                "global_batch_size": batch,
                "micro_batch_size": spec.micro_batch_size,
                "grad_accum_steps": spec.grad_accum_steps,
                "data_parallel_size": 1,
                "sequence_length": sequence_length,
                "tokens_per_step": batch * sequence_length,
            }
    if isinstance(spec, TrainSpec):
        row |= {
            "learning_rate": spec.learning_rate,
            "seed": spec.seed,
            "token_budget": spec.token_budget,
            "schedule": spec.schedule.kind,
            "warmup_fraction": spec.schedule.warmup_fraction,
            "optimizer": spec.optimizer.config.name,
            "batch_ratio": spec.optimizer.batch_ratio,
        }
    match record.result:
        case TrainResult() | ThroughputResult() | CapacityResult() as result:
            values = result.model_dump()
            row |= {name: values[name] for name in RESULT_COLUMNS if name in values and name not in row}
    if isinstance(record.result, TrainResult) and spec.workload.unit is Unit.TOKENS and spec.workload.metric is None:
        row["perplexity"] = perplexity(record.result.val_loss)
    return row


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value)
        case _:
            return str(value)
