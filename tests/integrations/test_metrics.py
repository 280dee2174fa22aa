"""Losses in what scripts print and write."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from batchlab.core.command import CommandMetrics
from batchlab.core.errors import InputError
from batchlab.integrations.script.metrics import Printed, Row, read_rows, trainer_rows
from batchlab.integrations.script.process import LONGEST_LINE, MOST_LOGGED, Output
from batchlab.integrations.script.throughput import growth, timed_rates


def metrics(**values: str | None) -> CommandMetrics:
    return CommandMetrics.model_validate({"val_loss": r"val loss (\S+)", **values})


def printed(*lines: str, **values: str) -> list[Row]:
    found = Printed.of(metrics(**values))
    for line in lines:
        found.line(line, 0.0)
    return found.result()


def test_the_last_match_of_a_line_counts() -> None:
    assert [row.val_loss for row in printed("val loss 3, val loss 2.5,", "nothing", "val loss: 1")] == [2.5]


def test_a_loss_without_a_step_has_the_last_one() -> None:
    rows = printed("step 4", "val loss 2", step=r"step (\d+)")
    assert rows[-1] == Row(4, None, 2.0, time=0.0)


@pytest.mark.parametrize(("text", "finite"), [("nan", False), ("inf", False), ("-inf", False), ("1e-3", True)])
def test_what_is_not_finite_is_a_loss(text: str, finite: bool) -> None:
    [row] = printed(f"val loss {text}")
    assert row.val_loss is not None
    assert math.isfinite(row.val_loss) is finite


@pytest.mark.parametrize(("pattern", "said"), [("val (", "no regular expression"), ("val loss", "0 groups")])
def test_a_pattern_has_one_group(pattern: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Printed.of(metrics(val_loss=pattern))


def test_files(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,val\n10,2.5\n20,\n30,nan\n")
    rows = read_rows(metrics(**{"from": "csv", "val_loss": "val", "step": "step"}), None, tmp_path, tmp_path)
    assert [(row.step, str(row.val_loss)) for row in rows] == [(10, "2.5"), (30, "nan")]
    (tmp_path / "log.jsonl").write_text('{"eval": 2, "step": 1}\n{"eval": 1.5, "st')
    rows = read_rows(metrics(**{"from": "jsonl", "val_loss": "eval"}), "*.jsonl", tmp_path, tmp_path)
    assert [row.val_loss for row in rows] == [2.0]
    state = tmp_path / "checkpoint-9" / "trainer_state.json"
    state.parent.mkdir()
    history = [{"loss": 2.0, "step": 5}, {"eval_loss": 1.0, "step": 9}]
    state.write_text(json.dumps({"log_history": history}))
    rows = read_rows(metrics(**{"from": "trainer_state", "val_loss": "eval_loss"}), None, tmp_path, tmp_path)
    assert [(row.step, row.val_loss) for row in rows] == [(9, 1.0)]
    assert read_rows(metrics(**{"from": "csv"}), "missing.csv", tmp_path, tmp_path) == []


def test_tensorboard(tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    event = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    out = writer.EventFileWriter(str(tmp_path))
    made = event.Event(step=7)
    made.summary.value.add(tag="val", simple_value=1.25)
    out.add_event(made)
    out.close()
    rows = read_rows(metrics(**{"from": "tensorboard", "val_loss": "val"}), None, tmp_path, tmp_path)
    assert [(row.step, row.val_loss) for row in rows] == [(7, 1.25)]


def test_rows_of_a_trainer(tmp_path: Path) -> None:
    logged = '{"step": 2, "eval_loss": 1.5, "eval_accuracy": 0.9, "time": 4.0}'
    (tmp_path / "rows").write_text(f'{{"step": 1, "time": 3.5}}\n{logged}\n')
    assert trainer_rows(tmp_path / "rows", metrics()) == [Row(step=1, time=3.5), Row(step=2, val_loss=1.5, time=4.0)]
    named = {"from": "trainer_state", "val_loss": None, "metric": "eval_accuracy"}
    assert trainer_rows(tmp_path / "rows", metrics(**named))[-1].val_loss == 0.9
    assert trainer_rows(tmp_path / "none", metrics()) == []


def test_output_is_bounded() -> None:
    logged, lines = bytearray(), []
    output = Output(log=logged.extend, line=lambda text, now: lines.append(len(text)))
    for _ in range(12):
        output.add(b"x" * 2**20, 0.0)
    output.add(b"\rlast line\n", 0.0)
    output.close(0.0)
    assert len(logged) < MOST_LOGGED + 2 * LONGEST_LINE
    assert logged.endswith(b"last line\n")
    assert lines == [LONGEST_LINE, len("last line")]


def test_a_run_that_is_too_short_to_be_timed_is_made_longer() -> None:
    assert growth(()) == 4
    assert growth(tuple(Row(step=step, time=step * 0.04) for step in range(6))) == 7
    assert growth(tuple(Row(step=step, time=step * 1e-6) for step in range(6))) == 256


def test_speed_leaves_out_the_first_steps_and_what_is_not_timed() -> None:
    rows = tuple(Row(step=step, time=100.0 if step == 0 else 110.0 + step / 2) for step in range(8))
    assert timed_rates(rows, 10) == pytest.approx([20.0] * 5)
    assert timed_rates(rows[:5], 10) == ()
    bursts = tuple(Row(step=step, time=float(step // 100) + step * 1e-6) for step in range(1, 801))
    assert timed_rates(bursts, 10) == pytest.approx([1000.0] * 8, rel=0.05)
    assert timed_rates(tuple(Row(val_loss=1.0, time=float(at)) for at in range(9)), 10) == ()
