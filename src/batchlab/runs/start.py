"""Runs that begin where another one ended."""

from __future__ import annotations

import hashlib

from batchlab.errors import InputError
from batchlab.protocols import RunContext, Trainable
from batchlab.spec import TrainSpec, Workload


def keep_end(trainable: Trainable, spec: TrainSpec, context: RunContext) -> None:
    """Leave the finished run's state, and what it is a state of."""
    context.keep_end({"step": spec.steps, "workload": _identity(spec.workload)}, trainable.state())


def go_on_from(run_id: str, trainable: Trainable, spec: TrainSpec, context: RunContext) -> None:
    """Load what `run_id` left at its end; InputError where that is missing or of another model or data."""
    found = context.end_of(run_id)
    if found is None:
        raise InputError(
            f"This run begins where {run_id} ended, and that run left no whole state (end/state in its folder); "
            "delete that run's folder to have it repeated."
        )
    header, state = found
    if header.get("workload") != _identity(spec.workload):
        raise InputError(
            f"The state that {run_id} left is of another model, data or task than this run trains; "
            "begin from a run of the same study, or train from scratch."
        )
    trainable.load(state)


def _identity(workload: Workload) -> str:
    return hashlib.sha256(workload.model_dump_json().encode()).hexdigest()
