"""The training loop over the simulated device, whose truth is known."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import ScheduleConfig, TaskReference
from batchlab.core.protocols import Batch, Interrupted, MemoryReading, StepStats, WriteState
from batchlab.core.record import MetricRow, Outcome, TrainResult
from batchlab.core.spec import TrainSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.train import train


class Numbers:
    """Dataset whose sample i is the number i."""

    digest = "numbers"

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def gather(self, indices: np.ndarray[Any, Any]) -> Batch:
        return (np.asarray(indices),)


class Recorder:
    """A Trainable that notes what it was given; its loss falls as 1/step unless told otherwise."""

    sample_independent = True

    def __init__(self, losses: dict[int, float] | None = None) -> None:
        self.losses = losses or {}
        self.seen: list[np.ndarray[Any, Any]] = []
        self.weights: list[float] = []
        self.rates: list[float] = []
        self.steps = 0
        self.clock = 0.0

    def init(self, seed: int) -> None:
        self.steps = 0

    def count(self, batch: Batch) -> float:
        return float(len(batch[0]))

    def accumulate(self, batch: Batch, weight: float) -> None:
        self.seen.append(batch[0])
        self.weights.append(weight * len(batch[0]))

    def apply(self, learning_rate: float) -> StepStats:
        self.rates.append(learning_rate)
        self.steps += 1
        self.clock += 0.5
        return StepStats(self.losses.get(self.steps, 1.0 / self.steps), 2.0, 1.0 if self.steps % 2 else 0.0)

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        return 0.25 * len(batch[0]), float(len(batch[0]))

    def state(self) -> bytes:
        return str(self.steps).encode()

    def load(self, state: bytes) -> None:
        self.steps = int(state)

    def memory(self) -> MemoryReading:
        return MemoryReading(1, 2, 3, 4, "reserved")

    def synchronize(self) -> float:
        return self.clock


class Notebook:
    """A RunContext in memory."""

    cache_dir = Path()
    path = Path()
    repaired_lines = 0

    def __init__(self, stop_at: int | None = None, saved: tuple[dict[str, Any], bytes] | None = None) -> None:
        self.rows: list[MetricRow] = []
        self.saved = saved
        self.stop_at = stop_at
        self.asked = 0

    def row(self, row: MetricRow) -> None:
        self.rows.append(row)

    def progress(self, *_: Any) -> None: ...

    def save_checkpoint(self, header: Any, write_state: WriteState) -> None:
        state = io.BytesIO()
        write_state(state)
        self.saved = dict(header), state.getvalue()

    def load_checkpoint(self) -> tuple[dict[str, Any], BinaryIO] | None:
        return None if self.saved is None else (self.saved[0], io.BytesIO(self.saved[1]))

    def keep_end(self, header: Any, write_state: WriteState) -> None: ...

    def end_of(self, run_id: str) -> None: ...

    def stop_requested(self) -> bool:
        self.asked += 1
        return self.stop_at is not None and self.asked == self.stop_at


def spec(batch: int = 8, micro: int | None = None, budget: int = 512, **changes: Any) -> TrainSpec:
    values: dict[str, Any] = {
        "workload": Workload(task=TaskReference(kind="recipe", target="simulated")),
        "layout": BatchLayout(global_batch_size=batch, micro_batch_size=micro or batch),
        "learning_rate": 0.1,
        "token_budget": budget,
        "evaluation_interval": budget // 4,
        "evaluation_samples": 10,
        "evaluation_batch_size": 4,
        "checkpoint_seconds": 1e9,
    }
    return TrainSpec(**{**values, **changes})


def run(task: TrainSpec, recorder: Recorder | None = None, notebook: Notebook | None = None, samples: int = 100) -> Any:
    data = Numbers(samples)
    recorder, notebook = recorder or Recorder(), notebook or Notebook()
    return train(recorder, SampleStream(data, seed=task.seed), data, task, notebook), recorder, notebook


@pytest.mark.parametrize("micro", [1, 2, 3, 8])
@pytest.mark.parametrize("batch", [4, 8, 16, 32])
def test_every_size_and_layout_sees_the_same_samples_in_the_same_order(batch: int, micro: int) -> None:
    _, recorder, _ = run(spec(batch, min(micro, batch)))
    _, reference, _ = run(spec(8))
    assert np.concatenate(recorder.seen).tolist() == np.concatenate(reference.seen).tolist()


def test_weights_of_a_step_sum_to_one_also_with_unequal_micro_batches() -> None:
    _, recorder, _ = run(spec(16, 6))
    sizes = [len(seen) for seen in recorder.seen[:3]]
    assert sizes == [6, 5, 5]
    assert math.isclose(sum(recorder.weights[:3]), 1.0)


def test_all_sizes_spend_the_same_learning_rate_budget() -> None:
    totals = []
    for batch in (4, 8, 32):
        _, recorder, _ = run(spec(batch, schedule=ScheduleConfig(kind="cosine", warmup_fraction=0.1)))
        totals.append(sum(rate * batch for rate in recorder.rates))
    assert max(totals) - min(totals) < 1e-9 * totals[0]
    assert recorder.rates[0] > 0


def test_evaluations_fall_on_the_same_token_counts_for_every_size() -> None:
    curves = []
    for batch in (4, 16, 32):
        ended, _, _ = run(spec(batch))
        assert isinstance(ended.result, TrainResult)
        curves.append([tokens for tokens, _ in ended.result.val_curve])
    assert curves == [[128, 256, 384, 512]] * 3
    assert ended.result.val_loss == 0.25


def test_rows_are_means_since_the_previous_row() -> None:
    _, _, notebook = run(spec(8, log_points=16))
    rows = [row for row in notebook.rows if row.train_loss is not None]
    assert len(rows) == 16
    assert rows[0].train_loss == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert rows[0].clipped_fraction == 0.5
    assert rows[0].step_seconds == pytest.approx(0.5)
    assert rows[0].tokens_per_second == pytest.approx(16.0)


@pytest.mark.parametrize(("bad", "word"), [(math.nan, "NaN"), (math.inf, "infinite")])
def test_a_loss_that_is_not_finite_ends_the_run_and_is_an_outcome(bad: float, word: str) -> None:
    ended, recorder, notebook = run(spec(8), Recorder({20: bad}))
    assert ended.outcome is Outcome.DIVERGED
    assert recorder.steps == 20
    assert ended.reason == f"The training loss was {word} at step 20 of 64."
    assert ended.result.val_loss is None
    last = notebook.rows[-1]
    assert (last.step, last.tokens) == (20, 160)
    assert not math.isfinite(last.train_loss)


def test_the_step_that_broke_is_named_also_between_two_rows() -> None:
    ended, recorder, notebook = run(spec(8, log_points=8), Recorder({19: math.nan}))
    assert recorder.steps == 24  # until a row is due the loop waits for no number
    assert ended.reason == "The training loss was NaN at step 19 of 64."
    assert (ended.result.steps, notebook.rows[-1].step) == (19, 19)


def test_a_loss_far_above_its_start_ends_the_run_early() -> None:
    ended, recorder, _ = run(spec(8, budget=2048), Recorder({step: 1.0 + step / 5 for step in range(300)}))
    assert ended.outcome is Outcome.DIVERGED
    assert 64 <= recorder.steps <= 160
    assert re.fullmatch(
        r"The mean training loss was over 3 times its start, [\d.]+, at step \d+ of 256\.", ended.reason
    )


def test_one_noisy_step_is_no_divergence() -> None:
    ended, _, _ = run(spec(8), Recorder({20: 100.0, 1: 0.01}))
    assert ended.outcome is Outcome.COMPLETED


def test_a_stopped_run_goes_on_from_its_checkpoint_to_the_same_numbers() -> None:
    whole, reference, _ = run(spec(8))
    notebook = Notebook(stop_at=30)
    first = Recorder()
    with pytest.raises(Interrupted):
        run(spec(8), first, notebook)
    assert first.steps == 30
    second = Recorder()
    ended, _, _ = run(spec(8), second, Notebook(saved=notebook.saved))
    assert np.concatenate([*first.seen, *second.seen]).tolist() == np.concatenate(reference.seen).tolist()
    assert ended.result.resumed == 1
    assert ended.result.final_train_loss == whole.result.final_train_loss
    assert ended.result.clipped_fraction == whole.result.clipped_fraction
    assert ended.result.val_curve == whole.result.val_curve


def test_starved_is_recorded_and_epochs_are_counted() -> None:
    ended, _, _ = run(spec(32))
    assert ended.result.undertrained
    assert ended.result.epochs == pytest.approx(5.12)
    assert not spec(4).undertrained
    assert spec(8, schedule=ScheduleConfig(warmup_fraction=0.05)).undertrained
    assert not spec(8, schedule=ScheduleConfig(warmup_fraction=0.0)).undertrained
