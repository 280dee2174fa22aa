"""Where a training run begins: afresh, at its checkpoint, or where another run ended."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import BinaryIO, NamedTuple

from batchlab.core.errors import InputError
from batchlab.core.protocols import RunContext, StreamsState, Trainable, WriteState
from batchlab.core.spec import TrainSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.tally import Tally


class Start(NamedTuple):
    """The step to begin with, from 0, what was summed up before it, and the samples from there on."""

    step: int
    tally: Tally
    stream: SampleStream


def start(trainable: Trainable, stream: SampleStream, spec: TrainSpec, context: RunContext) -> Start:
    """Initialise, or load the run's own checkpoint, else the end of the run that `spec.start` names.

    Raises InputError where that run left no state, or one of another model or data.
    """
    trainable.init(spec.seed)
    saved = context.load_checkpoint()
    if saved is not None:
        header, state = saved
        _read(trainable, state)
        return Start(header["step"], Tally.resume(header["tally"]), stream.going_on_at(header.get("first", 0)))
    if spec.start is not None:
        stream = stream.going_on_at(_load_end(spec.start, trainable, spec, context))
    return Start(0, Tally.begin(spec), stream)


def save(trainable: Trainable, context: RunContext, reached: Start) -> None:
    """Write a checkpoint from which the run can begin again."""
    header = {"step": reached.step, "first": reached.stream.first, "tally": asdict(reached.tally)}
    context.save_checkpoint(header, _writer(trainable))


def keep_end(trainable: Trainable, spec: TrainSpec, context: RunContext, samples: int) -> None:
    """Keep the finished run's state for runs that start from it, and how many `samples` of its order it has seen."""
    header = {"step": spec.steps, "workload": _identity(spec.workload), "seed": spec.seed, "samples": samples}
    context.keep_end(header, _writer(trainable))


def _writer(trainable: Trainable) -> WriteState:
    if isinstance(trainable, StreamsState):
        return trainable.write_state
    return lambda sink: sink.write(trainable.state())


def _read(trainable: Trainable, state: BinaryIO) -> None:
    if isinstance(trainable, StreamsState):
        trainable.read_state(state)
    else:
        trainable.load(state.read())


def _load_end(run_id: str, trainable: Trainable, spec: TrainSpec, context: RunContext) -> int:
    """Load the state that `run_id` kept; samples of this run's order seen there, which is none with another seed."""
    found = context.end_of(run_id)
    if found is None:
        raise InputError(
            f"This run starts where {run_id} ended, and that run left no whole state (end/state in its folder); "
            "delete that run's folder to have it repeated."
        )
    header, state = found
    if header.get("workload") != _identity(spec.workload):
        raise InputError(
            f"The state that {run_id} left is of another model, data or task than this run trains; "
            "start from a run of the same study, or train from scratch."
        )
    _read(trainable, state)
    return int(header["samples"]) if header.get("seed") == spec.seed else 0


def _identity(workload: Workload) -> str:
    return hashlib.sha256(workload.model_dump_json().encode()).hexdigest()
