"""Rows of a Hugging Face Trainer inside a person's script, written by a callback that the launcher adds to it."""

from __future__ import annotations

import importlib
import json
import os
import time
from numbers import Real
from pathlib import Path
from typing import Any

ROWS = "trainer.jsonl"


def callback() -> type:
    """The callback's class. Needs transformers, which the script is importing."""
    base: type = importlib.import_module("transformers.trainer_callback").TrainerCallback
    return type("BatchlabRows", (base,), {"on_log": _on_log, "on_step_end": _on_step_end})


def _on_log(self: Any, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
    if not state.is_world_process_zero or not logs:
        return
    numbers = {name: float(value) for name, value in logs.items() if isinstance(value, Real)}
    _write({**numbers, "step": state.global_step})


def _on_step_end(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
    if state.is_world_process_zero:
        _write({"step": state.global_step})


def _write(row: dict[str, Any]) -> None:
    folder = os.environ.get("BATCHLAB_RECORDS")
    if folder:
        with Path(folder, ROWS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "time": time.monotonic()}) + "\n")
