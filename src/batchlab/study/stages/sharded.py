"""The largest micro-batch on several devices that share the model's states, predicted from traces of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from batchlab.analysis.capacity.capacity import ShardedCapacity
from batchlab.analysis.capacity.sharded import Sharding, Strategy, in_flight, model_states, sharded_phases
from batchlab.core.record import ShardingUnit, TracePoint, TraceResult
from batchlab.search.capacity import CapacitySearch, Trace, Traced
from batchlab.study.stages.failure import StageFailed

TraceSizes = Callable[[tuple[int, ...]], TraceResult]


def sharded_stage(
    trace: TraceSizes, *, devices: int, limit_bytes: int, headroom: Callable[[int], int], most: int
) -> tuple[ShardedCapacity, ...]:
    """One answer for each way of sharding; none where the model cannot be traced."""
    found = (_found(trace, Sharding(way, devices), limit_bytes, headroom, most) for way in get_args(Strategy))
    return tuple(answer for answer in found if answer is not None)


def _found(
    trace: TraceSizes, sharding: Sharding, limit_bytes: int, headroom: Callable[[int], int], most: int
) -> ShardedCapacity | None:
    search = CapacitySearch(limit_bytes, most=most, headroom=headroom, probe=False)
    units: tuple[ShardingUnit, ...] = ()
    optimizer_bytes = 0
    while asked := search.ask():
        [question] = asked
        assert isinstance(question, Trace)
        traced = trace(question.sizes)
        units = traced.units or units
        optimizer_bytes = max([optimizer_bytes, *(p.optimizer_bytes for x in traced.points for p in x.phases)])
        search.tell(asked, [Traced(_phase_bytes(traced.points, units, sharding))])
    if search.curve is None:
        return None
    if not units:
        raise StageFailed("The trace of this task names no parameters, so several devices have nothing to share.")
    return ShardedCapacity(
        sharding=sharding,
        max_micro_batch_size=search.largest,
        peak_bytes=round(search.curve.at(search.largest or search.smallest)),
        states=model_states(units, sharding, optimizer_bytes),
        in_flight=in_flight(units, sharding),
        blocks=tuple(unit.name for unit in units if unit.name),
    )


def _phase_bytes(
    points: Sequence[TracePoint], units: Sequence[ShardingUnit], sharding: Sharding
) -> list[tuple[int, tuple[float, ...]]]:
    """The bytes of each phase, with what the caching allocator would reserve beyond them on one device."""
    return [
        (
            point.micro_batch_size,
            tuple(
                float(phase.total_bytes + max((point.reserved_bytes or 0) - point.peak.total_bytes, 0))
                for phase in sharded_phases(point, units, sharding)
            ),
        )
        for point in points
    ]
