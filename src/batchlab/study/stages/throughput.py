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
    return lay_out(
        global_batch_size,
        ceiling,
        data_parallel_size=experiment.device.data_parallel_size,
        sequence_length=experiment.sequence_length,
    )


def compared_layouts(experiment: Experiment, layouts: Sequence[BatchLayout]) -> list[BatchLayout]:
    """What is also measured where several devices share a batch: each of these batches on every number of devices, and
    a device's share of it on that device alone, in the same micro-batches. Between the two lies the communication."""
    device = experiment.device
    if device.most_devices == 1:
        return []
    found: dict[BatchLayout, None] = {}
    for layout in layouts:
        for devices in (*device.compared_devices, device.data_parallel_size):
            if devices > layout.global_batch_size:
                continue
            shared = lay_out(
                layout.global_batch_size,
                layout.micro_batch_size,
                data_parallel_size=devices,
                sequence_length=layout.sequence_length,
            )
            share = sum(shared.micro_batch_sizes())
            alone = lay_out(share, shared.micro_batch_size, sequence_length=layout.sequence_length)
            found |= {shared: None, alone: None}
    return [layout for layout in found if layout not in layouts]


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
    """The measured throughput of these layouts, by global batch size; where it failed, it is absent."""
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
