"""Memory variants: what each memory optimization buys for this model, each by its own capacity search and timing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchlab.analysis.capacity.capacity import Capacity, MemoryVariant
from batchlab.core.batch import lay_out
from batchlab.core.errors import InputError
from batchlab.core.experiment import build_experiment
from batchlab.core.settings import merge
from batchlab.storage.decisions import Decisions, MemoryVariantDecision
from batchlab.storage.store import Store
from batchlab.study.open_study import OpenStudy
from batchlab.study.session import Session
from batchlab.study.stages.capacity import CapacityRequest, capacity_stage
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.throughput import throughput_stage

AS_IT_IS = "as it is"

MEMORY_VARIANTS: dict[str, dict[str, Any]] = {
    "no gradient accumulation": {
        "batch": {"micro_batching": "off"}
    },  # no gradients kept from one micro-batch to the next
    "bf16": {"device": {"precision": "bf16"}},
    "checkpointing": {"device": {"memory_optimizations": ["checkpointing"]}},
    "chunked loss": {"device": {"memory_optimizations": ["chunked_loss"]}},
    "fused optimizer": {"device": {"memory_optimizations": ["fused_optimizer"]}},
}


def variants_stage(
    session: Session,
    found: Capacity,
    request: CapacityRequest,
    *,
    sample_independent: bool,
    variants: Mapping[str, dict[str, Any]] = MEMORY_VARIANTS,
) -> tuple[MemoryVariant, ...]:
    """The largest micro-batch with each memory optimization alone (`variants`: name → settings), and its speed there.

    The first variant is `found`, which has none of them. No size above the sweep's largest is timed. With
    `request.card_bytes`, sizes are predicted for a card that is not here, and nothing is timed. Each variant is a
    decision on disk, so an interrupted stage continues.
    """
    store, request = session.study.store, replace(request, prove=False)
    climbed = []
    for name, changes in {AS_IT_IS: {}, **variants}.items():
        if name not in store.decisions().variants:
            session.view.stage(f"variants: {name}")
            if name == AS_IT_IS:
                variant = _variant(name, session, found, request)
            else:
                variant = _saving(name, session, changes, request, sample_independent=sample_independent)
            decision = MemoryVariantDecision(
                max_micro_batch_size=variant.max_micro_batch_size,
                status=variant.status,
                tokens_per_second=variant.tokens_per_second,
                measured_at=variant.measured_at,
                why_not=variant.why_not,
            )
            store.decide(Decisions(variants={name: decision}))
        climbed.append(MemoryVariant(name, **store.decisions().variants[name].model_dump()))
    return tuple(climbed)


def _saving(
    name: str, session: Session, changes: dict[str, Any], request: CapacityRequest, *, sample_independent: bool
) -> MemoryVariant:
    try:
        with _changed(session, changes) as other:
            return _variant(name, other, capacity_stage(other, request, sample_independent=sample_independent), request)
    except (StageFailed, InputError) as failure:
        return MemoryVariant(name, why_not=str(failure))


def _variant(name: str, session: Session, found: Capacity, request: CapacityRequest) -> MemoryVariant:
    largest = found.max_micro_batch_size
    if largest is None or request.card_bytes is not None:
        return MemoryVariant(name, largest)
    experiment = session.study.experiment
    timed = min(largest, experiment.batch.global_batch_sizes[-1])
    layout = lay_out(timed, timed, sequence_length=experiment.sequence_length)
    speed = throughput_stage(session, [layout]).get(timed)
    return MemoryVariant(
        name, largest, "verified", speed.tokens_per_second if speed else None, timed if speed else None
    )


@contextmanager
def _changed(session: Session, changes: dict[str, Any]) -> Iterator[Session]:
    """The same task with other settings, in a folder that is gone afterwards; what was made from the data is shared."""
    study = session.study
    experiment = build_experiment(merge(study.experiment.model_dump(mode="json"), changes))
    with tempfile.TemporaryDirectory(prefix="batchlab-") as scratch:
        store = Store.create(Path(scratch) / "study", experiment)
        cache = study.store.path / "cache"
        if cache.is_dir():
            (store.path / "cache").symlink_to(cache)
        yield replace(session, study=OpenStudy(store, experiment, study.task_info), after_run=lambda: None)
