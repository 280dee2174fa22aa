"""What a person's script logs to the Trainer of transformers or to W&B, written to a file by hooks of the launcher."""

from __future__ import annotations

import functools
import importlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

TRAINER_ROWS = "trainer.jsonl"
WANDB_ROWS = "wandb.jsonl"


def watch_trainer(module: ModuleType) -> None:
    """Add a callback to those that every Trainer has. module: transformers.trainer, which was just imported."""
    base: type = importlib.import_module("transformers.trainer_callback").TrainerCallback
    made = type("BatchlabRows", (base,), {"on_log": _on_log, "on_step_end": _on_step_end})
    module.DEFAULT_CALLBACKS.append(made)


def _on_log(self: Any, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
    if state.is_world_process_zero and logs:
        _write(TRAINER_ROWS, {**dict(_numbers(logs)), "step": state.global_step})


def _on_step_end(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
    if state.is_world_process_zero:
        _write(TRAINER_ROWS, {"step": state.global_step})


def watch_wandb(module: ModuleType) -> None:
    """Note what every run logs. module: wandb.sdk.wandb_run, which was just imported."""
    log = module.Run.log

    @functools.wraps(log)
    def noted(self: Any, data: Mapping[str, Any], step: int | None = None, *args: Any, **kwargs: Any) -> Any:
        place = {} if step is None else {"_step": step}
        _write(WANDB_ROWS, {**dict(_numbers(data)), **place})
        return log(self, data, step, *args, **kwargs)

    module.Run.log = noted


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Numbers by name; those of an inner dictionary are named `outer.inner`, as W&B shows them."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, Real) or getattr(value, "shape", None) == ():
            yield f"{prefix}{name}", float(value)


def _write(file: str, row: Mapping[str, Any]) -> None:
    folder = os.environ.get("BATCHLAB_RECORDS")
    if folder:
        with Path(folder, file).open("a", encoding="utf-8") as rows:
            rows.write(json.dumps({**row, "time": time.monotonic()}) + "\n")
