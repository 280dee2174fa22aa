"""Where a training run begins: afresh, at its checkpoint, or where another run ended."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict
from typing import Any, BinaryIO, NamedTuple

from batchlab.core.errors import InputError
from batchlab.core.protocols import RunContext, SharesSums, StreamsState, Trainable, WriteState
from batchlab.core.ranks import ALONE, Ranks
from batchlab.core.spec import TrainSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.tally import Tally


class Start(NamedTuple):
    """The step to begin with, from 0, what was summed up before it, and the samples from there on."""

    step: int
    tally: Tally
    stream: SampleStream


def start(
    trainable: Trainable, stream: SampleStream, spec: TrainSpec, context: RunContext, ranks: Ranks = ALONE
) -> Start:
    """Initialise, or load the run's own checkpoint, else the end of the run that `spec.start` names.

    Rank 0 alone reads them, and sends what it begins with to the others. Raises InputError where the run to start from
    left no state, or one of another model or data.
    """
    trainable.init(spec.seed)
    header: dict[str, Any] = {}
    if ranks.rank == 0:
        saved = context.load_checkpoint()
        if saved is not None:
            header, state = saved
            _read(trainable, state)
        elif spec.start is not None:
            header = {"first": _load_end(spec.start, trainable, spec, context)}
    if ranks.size > 1:
        header = _spread(trainable, header, ranks)
    tally = Tally.resume(header["tally"]) if "tally" in header else Tally.begin(spec)
    return Start(header.get("step", 0), tally, stream.going_on_at(header.get("first", 0)))


def _spread(trainable: Trainable, header: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """Give every rank the state of rank 0, and after a checkpoint of as many ranks its own random state."""
    assert isinstance(trainable, SharesSums)
    header = json.loads(ranks.broadcast(json.dumps(header).encode()))
    state = ranks.broadcast(trainable.state() if ranks.rank == 0 else b"")
    if ranks.rank:
        trainable.load(state)
    trainable.join(ranks)
    saved = header.get("ranks", [])
    if len(saved) == ranks.size:
        trainable.load_rank_state(base64.b64decode(saved[ranks.rank]))
    return header


def save(trainable: Trainable, context: RunContext, reached: Start, ranks: Ranks = ALONE) -> None:
    """Write a checkpoint from which the run can begin again: the state of rank 0, and what differs on the others."""
    header = {"step": reached.step, "first": reached.stream.first, "tally": asdict(reached.tally)}
    if ranks.size > 1:
        assert isinstance(trainable, SharesSums)
        states = ranks.gather(trainable.rank_state())
        header["ranks"] = [base64.b64encode(state).decode() for state in states]
    if ranks.rank == 0:
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
