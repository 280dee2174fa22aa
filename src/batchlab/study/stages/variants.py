"""Memory variants: what each memory optimization alone buys, by a capacity search and a timing of its own."""

from __future__ import annotations

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
from batchlab.storage.atomic import scratch_folder
from batchlab.storage.decisions import Decisions, MemoryVariantDecision
from batchlab.storage.store import Store
from batchlab.study.open_study import OpenStudy
from batchlab.study.session import Session
from batchlab.study.stages.capacity import capacity_stage
from batchlab.study.stages.capacity_request import CapacityRequest
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.throughput import throughput_stage

BASELINE = "baseline"

MEMORY_VARIANTS: dict[str, dict[str, Any]] = {
    "no gradient accumulation": {"batch": {"micro_batching": "off"}},  # no gradients are kept between micro-batches
    "bf16": {"device": {"precision": "bf16"}},
    "checkpointing": {"device": {"memory_optimizations": ["checkpointing"]}},
    "chunked loss": {"device": {"memory_optimizations": ["chunked_loss"]}},
    "fused optimizer": {"device": {"memory_optimizations": ["fused_optimizer"]}},
}
"""Name → the settings that differ from the study's own."""


def variants_stage(
    session: Session,
    found: Capacity,
    request: CapacityRequest,
    *,
    sample_independent: bool,
    variants: Mapping[str, dict[str, Any]] = MEMORY_VARIANTS,
) -> tuple[MemoryVariant, ...]:
    """The largest micro-batch of each variant alone, and its speed there; first of the study as it is, `found`.

    No size above the sweep's largest is timed. With `request.card_bytes` sizes are predicted for another card and
    nothing is timed. Each variant is a decision on disk, so an interrupted stage continues with the next one.
    """
    store, request = session.study.store, replace(request, prove=False, devices=1)
    for name, changes in {BASELINE: {}, **variants}.items():
        if name in store.decisions().variants:
            continue
        session.view.stage(f"variants: {name}")
        if name == BASELINE:
            decision = _measured(session, found, request)
        else:
            decision = _searched(session, changes, request, sample_independent=sample_independent)
        store.decide(Decisions(variants={name: decision}))
    decided = store.decisions().variants
    return tuple(MemoryVariant(name, **decided[name].model_dump()) for name in (BASELINE, *variants))


def _searched(
    session: Session, changes: dict[str, Any], request: CapacityRequest, *, sample_independent: bool
) -> MemoryVariantDecision:
    try:
        with changed_session(session, changes) as other:
            found = capacity_stage(other, request, sample_independent=sample_independent)
            return _measured(other, found, request)
    except (StageFailed, InputError) as failure:
        return MemoryVariantDecision(why_not=str(failure))


def _measured(session: Session, found: Capacity, request: CapacityRequest) -> MemoryVariantDecision:
    largest = found.max_micro_batch_size
    if largest is None or request.card_bytes is not None:
        return MemoryVariantDecision(max_micro_batch_size=largest)
    experiment = session.study.experiment
    timed = min(largest, experiment.batch.global_batch_sizes[-1])
    layout = lay_out(timed, timed, sequence_length=experiment.sequence_length)
    speed = throughput_stage(session, [layout]).get(timed)
    return MemoryVariantDecision(
        max_micro_batch_size=largest,
        status="verified",
        tokens_per_second=speed.tokens_per_second if speed else None,
        measured_at=timed if speed else None,
    )


@contextmanager
def changed_session(session: Session, changes: dict[str, Any]) -> Iterator[Session]:
    """The same task with other settings, in a temporary folder that shares the study's prepared data."""
    study = session.study
    experiment = build_experiment(merge(study.experiment.model_dump(mode="json"), changes))
    with scratch_folder() as scratch:
        store = Store.create(scratch / "study", experiment)
        _share_files(study.store.path / "cache", store.path / "cache")
        yield replace(session, study=OpenStudy(store, experiment, study.task_info), documents=None)


def _share_files(cache: Path, other: Path) -> None:
    """Let `other` link to the files of `cache`: those are read, and what is missing is written to `other`."""
    other.mkdir(exist_ok=True)
    for file in cache.iterdir() if cache.is_dir() else ():
        (other / file.name).symlink_to(file)
