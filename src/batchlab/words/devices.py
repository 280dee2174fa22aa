"""What several devices that share a batch gain and lose, in words."""

from __future__ import annotations

from batchlab.analysis.values import ScalingPoint
from batchlab.core.batch import Unit
from batchlab.core.format import format_plural

SCALING_IS = (
    "Scaling efficiency is the measured speed divided by that of as many devices which do not communicate: each with "
    "its share of the batch, in the same micro-batches, measured on that device alone. What is missing to 100 % is "
    "communication, and waiting for the slowest device. On a CPU it is also the memory bandwidth that the processes "
    "share."
)


def describe_scaling(point: ScalingPoint, unit: Unit) -> str:
    """One batch on several devices."""
    layout = point.layout
    return (
        f"batch {layout.global_batch_size} on {format_plural(layout.data_parallel_size, 'device')}: "
        f"{point.tokens_per_second.value:,.0f} {unit.value}/s, {100 * point.efficiency:.0f} % scaling efficiency"
    )
