"""How global batches are split into micro-batches that fit, and how fast each is, alone on the device."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.core.batch import BatchLayout, largest_divisor, lay_out
from batchlab.core.experiment import Experiment
from batchlab.core.record import ThroughputResult
from batchlab.core.spec import ThroughputSpec
from batchlab.study.session import Session, run_alone


def layout_for(
    experiment: Experiment, global_batch_size: int, capacity: Capacity, *, sample_independent: bool
) -> BatchLayout:
    """The layout of a global batch: unsplit where it fits or may not be split, else the fewest micro-batches."""
    batch = experiment.batch
    ceiling = min(capacity.max_micro_batch_size or 1, batch.micro_batch_size or global_batch_size)
    if batch.micro_batching == "off" or not sample_independent:
        ceiling = global_batch_size
    elif batch.micro_batching == "even":
        ceiling = largest_divisor(global_batch_size, ceiling, experiment.command.devices if experiment.command else 1)
    return lay_out(global_batch_size, ceiling, sequence_length=experiment.sequence_length)


def known_oom(layout: BatchLayout, capacity: Capacity) -> bool:
    """Whether the layout has a micro-batch at which a probe ran out of memory, or that needs more than the limit."""
    size, failed = layout.micro_batch_size, capacity.smallest_failed
    if size <= (capacity.max_micro_batch_size or 0):
        return False
    if failed is not None and size >= failed:
        return True
    needed = capacity.needed_bytes(size)
    return needed is not None and capacity.limit_bytes is not None and needed > capacity.limit_bytes


def throughput_stage(session: Session, layouts: Sequence[BatchLayout]) -> dict[int, ThroughputResult]:
    """The measured throughput by global batch size; sizes whose measurement failed are absent."""
    specs = [
        ThroughputSpec(
            workload=session.study.workload,
            layout=layout,
            optimizer=session.optimizer(layout.global_batch_size),
            device=session.device,
        )
        for layout in layouts
    ]
    records = run_alone(session, specs)
    return {
        layout.global_batch_size: record.result
        for layout, record in zip(layouts, records, strict=True)
        if isinstance(record.result, ThroughputResult)
    }
