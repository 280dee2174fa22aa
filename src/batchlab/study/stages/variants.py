"""The ladder: what each way of saving memory buys at this model, each by a capacity search and a timing of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from batchlab.analysis.capacity.capacity import Capacity, Rung
from batchlab.core.batch import lay_out
from batchlab.core.errors import InputError
from batchlab.core.experiment import build_experiment
from batchlab.storage.store import Store
from batchlab.study.open_study import Opened
from batchlab.study.session import Session
from batchlab.study.stages.capacity import Aim, capacity_stage
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.throughput import throughput_stage
from batchlab.study.task_source import merge

AS_IT_IS = "as it is"

RUNGS: dict[str, dict[str, Any]] = {
    "one pass per step": {"batch": {"micro_batching": "off"}},  # no gradients kept from one micro-batch to the next
    "bf16": {"device": {"precision": "bf16"}},
    "checkpointing": {"device": {"savings": ["checkpointing"]}},
    "chunked loss": {"device": {"savings": ["chunked_loss"]}},
    "fused optimizer": {"device": {"savings": ["fused_optimizer"]}},
}


def ladder_stage(
    session: Session, found: Capacity, aim: Aim, *, separable: bool, rungs: Mapping[str, dict[str, Any]] = RUNGS
) -> tuple[Rung, ...]:
    """The largest micro-batch with each saving alone (`rungs`: name → settings), and its speed there.

    The first rung is `found`, which is without any of them. No size above the sweep's largest is timed. With
    `aim.card_bytes` sizes are predicted for a card that is not here and nothing is timed. Each rung is a decision on
    disk, so an interrupted ladder goes on.
    """
    store, aim = session.opened.store, replace(aim, prove=False)
    climbed = []
    for number, (name, changes) in enumerate({AS_IT_IS: {}, **rungs}.items()):
        key = f"rung {number}"
        if key not in store.decisions():
            session.view.stage(f"ladder: {name}")
            if name == AS_IT_IS:
                rung = _rung(name, session, found, aim)
            else:
                rung = _saving(name, session, changes, aim, separable=separable)
            store.decide(key, asdict(rung))
        climbed.append(Rung(**store.decisions()[key]))
    return tuple(climbed)


def _saving(name: str, session: Session, changes: dict[str, Any], aim: Aim, *, separable: bool) -> Rung:
    try:
        with _changed(session, changes) as other:
            return _rung(name, other, capacity_stage(other, aim, separable=separable), aim)
    except (StageFailed, InputError) as failure:
        return Rung(name, why_not=str(failure))


def _rung(name: str, session: Session, found: Capacity, aim: Aim) -> Rung:
    largest = found.max_micro_batch_size
    if largest is None or aim.card_bytes is not None:
        return Rung(name, largest)
    experiment = session.opened.experiment
    timed = min(largest, experiment.batch.global_batch_sizes[-1])
    layout = lay_out(timed, timed, sequence_length=experiment.sequence_length)
    speed = throughput_stage(session, [layout]).get(timed)
    return Rung(name, largest, "verified", speed.tokens_per_second if speed else None, timed if speed else None)


@contextmanager
def _changed(session: Session, changes: dict[str, Any]) -> Iterator[Session]:
    """The same task with other settings, in a folder that is gone afterwards; what was made from the data is shared."""
    opened = session.opened
    experiment = build_experiment(merge(opened.experiment.model_dump(mode="json"), changes))
    with tempfile.TemporaryDirectory(prefix="batchlab-") as scratch:
        store = Store.create(Path(scratch) / "study", experiment)
        cache = opened.store.path / "cache"
        if cache.is_dir():
            (store.path / "cache").symlink_to(cache)
        yield replace(session, opened=Opened(store, experiment, opened.subject), after_run=lambda: None)
