"""Learning-rate schedules between batchlab's words and those of transformers; imports no trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchlab.core.errors import InputError
from batchlab.core.experiment import ScheduleConfig


def to_transformers(schedule: ScheduleConfig, steps: int) -> dict[str, Any]:
    """lr_scheduler_type and lr_scheduler_kwargs of a run of `steps` steps."""
    final = schedule.final_fraction
    match schedule.kind:
        case "constant":
            return {"lr_scheduler_type": "constant_with_warmup", "lr_scheduler_kwargs": None}
        case "cosine" if final == 0:
            return {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": None}
        case "cosine":
            return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": final}}
        case "wsd" if final == 0 and schedule.decay_fraction == 1:
            return {"lr_scheduler_type": "linear", "lr_scheduler_kwargs": None}
        case "wsd":
            decay = {
                "num_decay_steps": round(schedule.decay_fraction * steps),
                "decay_type": "linear",
                "min_lr_ratio": final,
            }
            return {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": decay}
        case "task":
            raise InputError("The study's schedule is that of a script, which only its command has.")


def from_transformers(
    kind: str, settings: Mapping[str, Any] | None, learning_rate: float, warmup: float, steps: int
) -> dict[str, Any]:
    """The settings of `schedule` for a scheduler of transformers.

    warmup: steps, of the `steps` that the trainer would take by itself. Raises InputError where no schedule of batchlab
    is the same.
    """
    given = dict(settings or {})
    shared = {"warmup_fraction": min(0.99, warmup / steps)}
    match kind:
        case "linear" if not given:
            return {**shared, "kind": "wsd", "decay_fraction": 1.0, "final_fraction": 0.0}
        case "constant":
            return {"kind": "constant", "warmup_fraction": 0.0}
        case "constant_with_warmup":
            return {**shared, "kind": "constant"}
        case "cosine" if not given:
            return {**shared, "kind": "cosine", "final_fraction": 0.0}
        case "cosine_with_min_lr" if given.keys() <= {"min_lr", "min_lr_rate"}:
            final = given.get("min_lr_rate") or (given.get("min_lr") or 0.0) / learning_rate
            return {**shared, "kind": "cosine", "final_fraction": final}
        case "warmup_stable_decay" if given.get("decay_type") == "linear" and given.get("num_decay_steps"):
            return {
                **shared,
                "kind": "wsd",
                "decay_fraction": min(1.0, given["num_decay_steps"] / steps),
                "final_fraction": given.get("min_lr_ratio", 0.0),
            }
    raise InputError(
        f"The Trainer's scheduler {kind} with lr_scheduler_kwargs={given or None} cannot be followed at other "
        "batch sizes and budgets; use linear, cosine, cosine_with_min_lr, constant_with_warmup, or warmup_stable_decay "
        "with decay_type='linear' and num_decay_steps."
    )
