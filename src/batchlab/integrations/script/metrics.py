"""The losses of a script, from what it printed or from a file that it wrote."""

from __future__ import annotations

import csv
import importlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from batchlab.core.command import CommandMetrics
from batchlab.core.errors import InputError, quote

MOST_TIMED = 100_000
"""Lines with a step but no loss that are kept, for their time."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a script said at one time. step: None where it does not say. time: seconds on any clock.

    val_loss: what batch sizes are judged by.
    """

    step: int | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    time: float | None = None


@dataclass(slots=True)
class Printed:
    """Finds losses in lines as they are printed. A line without a step has that of the last line that had one."""

    judged: re.Pattern[str] | None
    train_loss: re.Pattern[str] | None
    step: re.Pattern[str] | None
    rows: list[Row] = field(default_factory=list)
    _step: int | None = None

    @classmethod
    def of(cls, metrics: CommandMetrics) -> Printed:
        """Looks for what the study.toml names. Raises InputError for what is no regular expression of one group."""
        if metrics.source != "stdout":
            return cls(None, None, None)
        return cls(
            _pattern("val_loss" if metrics.metric is None else "metric", metrics.judged),
            _pattern("train_loss", metrics.train_loss),
            _pattern("step", metrics.step),
        )

    def line(self, text: str, now: float) -> None:
        """Take in one line."""
        step = _last(self.step, text)
        stepped = step is not None and math.isfinite(step)
        if step is not None and stepped:
            self._step = int(step)
        val, train = _last(self.judged, text), _last(self.train_loss, text)
        if val is not None or train is not None or (stepped and len(self.rows) < MOST_TIMED):
            self.rows.append(Row(self._step, train, val, time=now))

    def result(self) -> list[Row]:
        """Everything that was found."""
        return self.rows


def _pattern(name: str, text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InputError(f"command.metrics.{name} is {quote(text)}, which is no regular expression: {error}.") from None
    if pattern.groups != 1:
        raise InputError(
            f"command.metrics.{name} is {quote(text)}, which has {pattern.groups} groups; put the number into one: "
            rf"'{name.replace('_', ' ')} (\S+)'."
        )
    return pattern


def _last(pattern: re.Pattern[str] | None, text: str) -> float | None:
    """The number of the last match; None where none is a number."""
    if pattern is None:
        return None
    found = None
    for match in pattern.finditer(text):
        number = _number(match.group(1))
        found = number if number is not None else found
    return found


def _number(value: object) -> float | None:
    """A number, with what often stands around one taken off."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    text = str(value).strip().strip("\"'").rstrip(",;:)]}").replace("−", "-")
    try:
        return float(text)
    except ValueError:
        return None


def read_rows(metrics: CommandMetrics, file: str | None, output: Path, folder: Path) -> list[Row]:
    """The rows of the newest file that `file` matches; none where there is no such file.

    file: metrics.file with its placeholders filled; relative to `folder`. output: the run's own folder.
    """
    path = _newest(output, _NAMES[metrics.source]) if file is None else _given(file, folder)
    if path is None:
        return []
    match metrics.source:
        case "jsonl":
            return _of_mappings(_json_lines(path), metrics)
        case "csv":
            with path.open(encoding="utf-8", errors="replace", newline="") as lines:
                return _of_mappings(csv.DictReader(lines, skipinitialspace=True), metrics)
        case "trainer_state":
            history = json.loads(path.read_text(encoding="utf-8")).get("log_history", [])
            named = metrics.model_copy(update={"step": metrics.step or "step"})
            return _of_mappings(history, named)
        case "tensorboard":
            return _of_tensorboard(path, metrics)
        case _:
            return []


_NAMES = {
    "stdout": "",
    "wandb": "",
    "trainer_state": "trainer_state.json",
    "tensorboard": "events.out.tfevents.*",
    "jsonl": "*.jsonl",
    "csv": "*.csv",
}
"""What the file of a source is called that was written somewhere in a run's folder."""


def _newest(folder: Path, name: str) -> Path | None:
    """The newest file of that name below a folder."""
    found = [path for path in folder.rglob(name) if path.is_file()] if name and folder.is_dir() else []
    return max(found, key=lambda path: (path.stat().st_mtime_ns, str(path)), default=None)


def _given(file: str, folder: Path) -> Path | None:
    """The file, or the newest that a pattern with * matches."""
    path = folder / file
    if path.is_file():
        return path
    fixed = next((index for index, part in enumerate(path.parts) if "*" in part), None)
    return None if fixed is None else _newest(Path(*path.parts[:fixed]), str(Path(*path.parts[fixed:])))


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                continue  # the last line of a process that was killed
            if isinstance(value, dict):
                yield value


def _of_mappings(rows: Iterable[Mapping[str, Any]], metrics: CommandMetrics) -> list[Row]:
    found = []
    for values in rows:
        step = _number(values.get(metrics.step)) if metrics.step else None
        row = Row(
            step=int(step) if step is not None and math.isfinite(step) else None,
            val_loss=_number(values.get(metrics.judged)),
            train_loss=_number(values.get(metrics.train_loss)) if metrics.train_loss else None,
            time=_number(values.get("time")),
        )
        if row.val_loss is not None or row.train_loss is not None:
            found.append(row)
    return found


def _of_tensorboard(path: Path, metrics: CommandMetrics) -> list[Row]:
    try:
        module = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    except ModuleNotFoundError:
        raise InputError(
            "command.metrics.from = \"tensorboard\" needs tensorboard; run: pip install 'batchlab[tensorboard]'."
        ) from None
    rows = []
    for event in module.EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            number = float(value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value)
            row = Row(step=int(event.step), time=float(event.wall_time))
            if value.tag == metrics.judged:
                rows.append(replace(row, val_loss=number))
            elif value.tag == metrics.train_loss:
                rows.append(replace(row, train_loss=number))
    return rows


def wandb_rows(path: Path, metrics: CommandMetrics) -> list[Row]:
    """The rows that the launcher recorded of a W&B run, where the losses are there."""
    if metrics.source != "wandb" or not path.is_file():
        return []
    return _of_mappings(_json_lines(path), metrics.model_copy(update={"step": metrics.step or "_step"}))


def trainer_rows(path: Path, metrics: CommandMetrics) -> list[Row]:
    """The rows that the launcher recorded of a Trainer; none where there was none."""
    if not path.is_file():
        return []
    judged = metrics.judged if metrics.source == "trainer_state" else "eval_loss" if metrics.metric is None else ""
    return [
        Row(
            step=int(values["step"]),
            train_loss=_number(values.get("loss")),
            val_loss=_number(values.get(judged)),
            learning_rate=_number(values.get("learning_rate")),
            grad_norm=_number(values.get("grad_norm")),
            time=_number(values.get("time")),
        )
        for values in _json_lines(path)
        if "step" in values
    ]
