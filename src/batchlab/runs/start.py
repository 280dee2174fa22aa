"""Runs that begin where another one ended."""

from __future__ import annotations

import hashlib

from batchlab.core.errors import InputError
from batchlab.core.protocols import RunContext, Trainable
from batchlab.core.spec import TrainSpec, Workload


def keep_end(trainable: Trainable, spec: TrainSpec, context: RunContext, samples: int) -> None:
    """Leave the finished run's state, what it is a state of, and how many `samples` of its order it has seen."""
    header = {"step": spec.steps, "workload": _identity(spec.workload), "seed": spec.seed, "samples": samples}
    context.keep_end(header, trainable.state())


def go_on_from(run_id: str, trainable: Trainable, spec: TrainSpec, context: RunContext) -> int:
    """Load what `run_id` left at its end; samples of this run's order seen there, which is none with another seed.

    InputError where the state is missing or of another model or data.
    """
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
    return int(header["samples"]) if header.get("seed") == spec.seed else 0


def _identity(workload: Workload) -> str:
    return hashlib.sha256(workload.model_dump_json().encode()).hexdigest()
