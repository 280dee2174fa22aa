"""Contract test for Tracker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchlab.core.protocols import Tracker
from batchlab.core.record import MetricRow, Outcome, Record, TrainResult
from batchlab.testing.requirement import require

ReadBack = Callable[[str], Sequence[tuple[int, float]]]
"""Maps a run to its (step, val_loss) pairs, read with the tracker's own reader."""


def check_tracker(make_tracker: Callable[[], Tracker], read_back: ReadBack) -> None:
    """Check that concurrent runs stay separate, that a restarted run is replaced and that an unfinished one is kept.

    Each call of `make_tracker` must open the same location, as the sessions of one study do. Raises AssertionError for
    the first violated requirement.
    """
    first, second = _rows("a", 3), _rows("b", 4)
    tracker = make_tracker()
    tracker.begin("run-a", _settings(8))
    tracker.begin("run-b", _settings(16))
    for one, other in zip(first, second, strict=False):
        tracker.row("run-a", one)
        tracker.row("run-b", other)
    tracker.end("run-a", _record("run-a", Outcome.COMPLETED, 1.25))
    tracker.row("run-b", second[-1])
    tracker.close()
    tracker.close()
    require(_points(read_back("run-a")) == _expected(first), "rows of a finished run must be read back in order")
    require(_points(read_back("run-b")) == _expected(second), "rows of an unfinished run must be read back in order")

    tracker = make_tracker()
    tracker.begin("run-a", _settings(8))
    tracker.row("run-a", second[0])
    tracker.end("run-a", _record("run-a", Outcome.DIVERGED, float("nan")))
    tracker.close()
    require(_points(read_back("run-a")) == _expected(second[:1]), "a restarted run must be replaced")
    require(_points(read_back("run-b")) == _expected(second), "other runs must not change")


def _settings(size: int) -> dict[str, str | int | float | bool]:
    return {"task": "contract", "global_batch_size": size, "learning_rate": 1e-3, "compiled": False}


def _rows(name: str, count: int) -> list[MetricRow]:
    start = {"a": 2.0, "b": 3.0}[name]
    return [
        MetricRow(step=10 * n, tokens=640 * n, val_loss=start / n, train_loss=start, diagnostics={"update/layer": 0.5})
        for n in range(1, count + 1)
    ]


def _record(run: str, outcome: Outcome, loss: float) -> Record:
    result = TrainResult(steps=30, tokens=1920, val_loss=loss)
    return Record(run_id=run, outcome=outcome, reason="as the contract says", result=result)


def _expected(rows: Sequence[MetricRow]) -> list[tuple[int, float]]:
    return [(row.step, round(row.val_loss or 0.0, 6)) for row in rows]


def _points(found: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(int(step), round(float(loss), 6)) for step, loss in found]
