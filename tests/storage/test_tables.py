"""outcomes.csv is reproducible to the bit, results.csv says everything."""

from __future__ import annotations

import csv
import io
from itertools import permutations

from batchlab.core.record import Record, TrainResult
from batchlab.core.spec import Spec
from batchlab.storage.tables import outcomes_csv, results_csv

Runs = list[tuple[Spec, Record]]


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_outcomes_hold_training_runs_sorted_with_floats_that_read_back(finished_runs: Runs) -> None:
    rows = read(outcomes_csv(finished_runs))
    assert [(row["global_batch_size"], row["outcome"]) for row in rows] == [("4", "diverged"), ("16", "completed")]
    last = rows[1]
    assert float(last["val_loss"]) == 1 / 3
    assert last["best_val_loss"] == "0.30000000000000004"
    assert last["learning_rate"] == "0.1"
    assert rows[0]["val_loss"] == ""


def test_outcomes_do_not_depend_on_the_order_or_on_time(finished_runs: Runs) -> None:
    reference = outcomes_csv(finished_runs)
    assert {outcomes_csv(order) for order in permutations(finished_runs)} == {reference}
    slower = []
    for spec, record in finished_runs:
        result = record.result
        if isinstance(result, TrainResult):
            result = result.model_copy(
                update={"seconds": 99.0, "tokens_per_second": 1.0, "peak_bytes": 5, "resumed": 3}
            )
        slower.append((spec, record.model_copy(update={"result": result, "attempts": 2, "reason": "other words"})))
    assert outcomes_csv(slower) == reference
    assert results_csv(slower) != results_csv(finished_runs)


def test_results_hold_every_kind(finished_runs: Runs) -> None:
    rows = read(results_csv(finished_runs))
    assert [row["kind"] for row in rows] == ["capacity", "throughput", "train", "train"]
    capacity, throughput, _, train = rows
    assert (capacity["micro_batch_size"], capacity["fits"], capacity["outcome"]) == ("64", "false", "out_of_memory")
    assert capacity["global_batch_size"] == "128"
    assert (throughput["grad_accum_steps"], throughput["tokens_per_second"]) == ("2", "5000.0")
    assert throughput["tokens_per_step"] == "32"
    assert (train["seconds"], train["tokens_per_second"]) == ("1.25", "1024.5")
    assert all(row["sequence_length"] == "8" and row["unit"] == "tokens" for row in rows)


def test_every_value_has_a_column(finished_runs: Runs) -> None:
    for row in read(results_csv(finished_runs)):
        assert None not in row
        assert all(row[name] for name in ("kind", "run_id", "outcome", "device", "threads", "attempts"))
