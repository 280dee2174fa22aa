"""TensorBoard event files, one folder per run, written by the tensorboard package itself: no torch, no tensorflow.

tensorboard --logdir STUDY/tensorboard
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from batchlab.core.protocols import Setting
from batchlab.core.record import MetricRow, Record
from batchlab.trackers.values import results_of, scalars_of


class TensorBoardTracker:
    """A Tracker writing `folder/tensorboard/<run>/`. Settings are hyperparameters; results are tagged `result/…`."""

    def __init__(self, folder: Path, study: str, *, online: bool = False) -> None:
        self._folder = folder / "tensorboard"
        self._study = study
        self._writers: dict[str, EventFileWriter] = {}
        self._last_step: dict[str, int] = {}

    def begin(self, run: str, settings: Mapping[str, Setting]) -> None:
        """Start the run in an empty folder."""
        shutil.rmtree(self._folder / run, ignore_errors=True)
        self._writers[run] = EventFileWriter(str(self._folder / run))
        self._last_step[run] = 0
        self._write(run, 0, hparams_pb(dict(settings), trial_id=run))

    def row(self, run: str, row: MetricRow) -> None:
        """One scalar for each number."""
        self._last_step[run] = row.step
        self._write(run, row.step, _summary(scalars_of(row)))

    def end(self, run: str, record: Record) -> None:
        """Write the result's numbers and the outcome as text, and close the run's file."""
        numbers = {
            f"result/{name}": float(value)
            for name, value in results_of(record).items()
            if isinstance(value, int | float)
        }
        self._write(run, self._last_step[run], _summary(numbers))
        self._write(run, self._last_step[run], _text("outcome", f"{record.outcome.label}. {record.reason}".strip()))
        self._writers.pop(run).close()

    def close(self) -> None:
        """Flush and close all open files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write(self, run: str, step: int, summary: Any) -> None:
        self._writers[run].add_event(Event(wall_time=time(), step=step, summary=summary))
        self._writers[run].flush()


def _summary(numbers: Mapping[str, float]) -> Summary:
    return Summary(value=[Summary.Value(tag=name, simple_value=number) for name, number in numbers.items()])


def _text(tag: str, text: str) -> Summary:
    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
    return Summary(value=[Summary.Value(tag=tag, metadata=create_summary_metadata(tag, ""), tensor=tensor)])
