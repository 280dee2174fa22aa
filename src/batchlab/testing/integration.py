"""Contract test for Integration."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from batchlab.core.pairing import Pairing
from batchlab.core.protocols import Integration, Interrupted, RunResult, WriteState
from batchlab.core.record import MetricRow, Outcome, TaskInfo, TrainResult
from batchlab.core.spec import InspectSpec, TraceSpec, TrainSpec
from batchlab.testing.requirement import require


class Recorder:
    """A RunContext that keeps rows in memory; `stop` asks the run to stop."""

    def __init__(self, path: Path, *, stop: bool = False) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = self.cache_dir = path
        self.repaired_lines = 0
        self.rows: list[MetricRow] = []
        self._stop = stop
        self._kept: tuple[dict[str, Any], bytes] | None = None

    def row(self, row: MetricRow) -> None:
        self.rows.append(row)

    def progress(self, step: int, steps: int, tokens: int, train_loss: float | None, speed: float | None) -> None:
        require(0 <= step <= steps, f"progress of {step} of {steps} steps")

    def save_checkpoint(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        kept = io.BytesIO()
        write_state(kept)
        self._kept = dict(header), kept.getvalue()

    def load_checkpoint(self) -> tuple[dict[str, Any], BinaryIO] | None:
        return None if self._kept is None else (self._kept[0], io.BytesIO(self._kept[1]))

    def keep_end(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        self.save_checkpoint(header, write_state)

    def end_of(self, run_id: str) -> tuple[dict[str, Any], BinaryIO] | None:
        return None

    def stop_requested(self) -> bool:
        return self._stop


def check_integration(
    make_integration: Callable[[], Integration], spec: TrainSpec, folder: Path
) -> tuple[TaskInfo, RunResult]:
    """Check that a program is described, trained and stopped as the rest of batchlab expects.

    `spec` is a short training run that completes, as the study would ask for it before the task is inspected.

    Its TaskInfo names an integration; a trace is answered, if only by why there is none. The run completes with the
    tokens asked for and a finite validation loss, and logs rows in the order of their steps. Where the result claims a
    pairing, the same spec gives the same loss again and another seed another one. A run that is asked to stop at once
    raises Interrupted. No process is left behind. Returns the TaskInfo and the first result of `spec`. Raises
    AssertionError for the first violated requirement.
    """
    inspected = make_integration().run(
        InspectSpec(workload=spec.workload, optimizer=spec.optimizer, device=spec.device), Recorder(folder / "inspect")
    )
    info = inspected.result
    require(isinstance(info, TaskInfo), f"an InspectSpec must give a TaskInfo, not {inspected}")
    assert isinstance(info, TaskInfo)
    require(info.integration is not None, "TaskInfo.integration must name the integration")

    known = spec.workload.model_copy(update={"integration": info.integration, "data_digest": info.data_digest})
    spec = spec.model_copy(update={"workload": known})
    trace = TraceSpec(workload=known, micro_batch_sizes=(1,), optimizer=spec.optimizer, device=spec.device)
    traced = make_integration().run(trace, Recorder(folder / "trace"))
    require(traced.outcome is Outcome.COMPLETED, f"a trace must complete, if only with `untraceable`: {traced.reason}")

    first, rows = _train(make_integration(), spec, folder / "first")
    require(rows == sorted(rows), f"rows must come in the order of their steps, not {rows}")
    if first.pairing is not Pairing.NONE:
        again, _ = _train(make_integration(), spec, folder / "again")
        require(_loss(again) == _loss(first), f"one seed gave {_loss(first)} and {_loss(again)}")
        other, _ = _train(make_integration(), spec.model_copy(update={"seed": spec.seed + 1}), folder / "other")
        require(_loss(other) != _loss(first), f"two seeds gave {_loss(first)}, so they are no measure of noise")

    _require_stop(make_integration(), spec, folder / "stopped")
    left = psutil.Process().children(recursive=True)
    require(not left, f"processes are left behind: {left}")
    return info, first


def _train(integration: Integration, spec: TrainSpec, folder: Path) -> tuple[RunResult, list[int]]:
    context = Recorder(folder)
    found = integration.run(spec, context)
    require(found.outcome is Outcome.COMPLETED, f"the run must complete, not end as {found.outcome}: {found.reason}")
    result = found.result
    assert isinstance(result, TrainResult), "a TrainSpec must give a TrainResult"
    require(result.tokens == spec.token_budget, f"{result.tokens} tokens were trained instead of {spec.token_budget}")
    require(math.isfinite(_loss(found)), f"val_loss is {_loss(found)}")
    return found, [row.step for row in context.rows]


def _loss(found: RunResult) -> float:
    loss = found.result.val_loss if isinstance(found.result, TrainResult) else None
    return math.nan if loss is None else loss


def _require_stop(integration: Integration, spec: TrainSpec, folder: Path) -> None:
    try:
        integration.run(spec, Recorder(folder, stop=True))
    except Interrupted:
        return
    raise AssertionError("a run that is asked to stop must raise Interrupted")
