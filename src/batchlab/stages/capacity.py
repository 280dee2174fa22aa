"""Which micro-batch fits."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from batchlab.batch import format_bytes
from batchlab.record import CapacityResult, Outcome, Record
from batchlab.search.capacity import CapacitySearch
from batchlab.session import Session, run_alone
from batchlab.spec import CapacitySpec, DeviceSettings
from batchlab.stages.failure import StageFailed

LARGEST_EVALUATION_BATCH = 64


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the capacity stage settled. `max_micro_batch_size` None: not even the smallest size fitted."""

    max_micro_batch_size: int | None
    smallest_failed: int | None
    worker_bytes: int | None


def capacity_stage(session: Session, *, separable: bool, beyond_need: bool = False) -> Capacity:
    """Find the largest micro-batch that fits, by default only up to what the sweep needs."""
    opened = session.opened
    experiment, store = opened.experiment, opened.store
    sizes = experiment.batch.global_batch_sizes
    needed = min(experiment.batch.micro_batch_size or sizes[-1], sizes[-1])
    splittable = separable and experiment.batch.micro_batching == "auto"
    smallest = 1 if separable else 2
    search = CapacitySearch(needed=max(needed, smallest), smallest=min(smallest, needed), prove=beyond_need)
    device = session.device
    if beyond_need and device.memory_limit is None and device.name == "cpu":
        # Decided once: what is free changes all the time, and another limit would be another probe.
        limit = store.decide("capacity_limit", int(0.8 * psutil.virtual_memory().available))
        device = device.model_copy(update={"memory_limit": limit})
    peaks: list[int] = []
    while asked := search.ask():
        specs = [
            CapacitySpec(
                workload=opened.workload,
                micro_batch_size=size,
                grad_accum_steps=2 if splittable else 1,
                evaluation_batch_size=min(size, LARGEST_EVALUATION_BATCH),
                optimizer=session.optimizer(experiment.reference_batch_size),
                device=device,
            )
            for size in asked
        ]
        records = run_alone(session, specs)
        broken = [r for r in records if r.outcome is Outcome.FAILED]
        if broken:
            raise StageFailed(f"The task failed while its memory was measured: {broken[0].reason}")
        search.tell(list(asked), [record.outcome is Outcome.COMPLETED for record in records])
        peaks += [_process_bytes(record) for record in records]
    limit, limit_is = _memory_limit(device)
    decided = store.decide(
        "capacity" if beyond_need else "micro_batch",
        {
            "max_micro_batch_size": search.largest,
            "status": search.status,
            "searched_up_to": max(needed, search.largest or 0),
            "smallest_failed": search.smallest_failed,
            "limit_bytes": limit,
            "limit_is": limit_is,
        },
    )
    return Capacity(decided["max_micro_batch_size"], decided["smallest_failed"], max(peaks, default=0) or None)


def _process_bytes(record: Record) -> int:
    result = record.result
    if not isinstance(result, CapacityResult) or not result.fits:
        return 0
    return (result.baseline_bytes or 0) + max(result.peak_allocated_bytes or 0, result.peak_reserved_bytes or 0)


def _memory_limit(device: DeviceSettings) -> tuple[int | None, str]:
    if device.memory_limit is not None:
        if device.name == "cpu":
            return device.memory_limit, "VmData of a worker above its warmed-up baseline (soft RLIMIT_DATA)"
        return device.memory_limit, "the device's allocator, as asked with --memory-limit"
    if device.name == "cpu":
        return psutil.virtual_memory().total, "this machine's memory; no limit was set"
    return None, "the device's own memory"


def describe_capacity(session: Session, capacity: Capacity, *, beyond_need: bool = False) -> str:
    """The stage's result as a line."""
    decided = session.opened.store.decisions().get("capacity" if beyond_need else "micro_batch", {})
    limit = (
        f" within {format_bytes(decided['limit_bytes'])} ({decided['limit_is']})" if decided.get("limit_bytes") else ""
    )
    if capacity.max_micro_batch_size is None:
        return f"   nothing fits{limit}"
    if capacity.smallest_failed is not None:
        tail = f"; {capacity.smallest_failed} does not"
    else:
        tail = "; nothing larger was tried" if beyond_need else ", all that the sweep needs"
    return f"   micro-batch {capacity.max_micro_batch_size} fits{limit}{tail}"
