"""What the plots of the device say: speed against batch size, memory against micro-batch size."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.capacity.capacity import Capacity, MemoryPoint
from batchlab.analysis.values import ThroughputFinding, ThroughputPoint
from batchlab.core.format import format_list, format_plural, format_split
from batchlab.words.capacity_reasons import probe_reason
from batchlab.words.units import Units

NO_SPEED = "Speed was not measured in this study."
NO_MEMORY = "Memory was not probed in this study."
NO_PEAKS = "No probe recorded its peak memory, and no limit is known."
MEMORY = "Memory against micro-batch size"
STEP_SECONDS = "seconds per step"
STEP_SECONDS_HOVER = f"batch %{{x:,}}: %{{y:.3g}} {STEP_SECONDS}<extra></extra>"


def speed_title(units: Units) -> str:
    return f"Speed: {units.name} per second and time per step"


def describe_speed(point: ThroughputPoint, units: Units) -> tuple[str, ...]:
    """The lines beside a point of the speed plot."""
    rate = point.tokens_per_second
    lines = [
        f"batch {point.layout.global_batch_size:,} as {format_split(point.layout)}",
        f"{rate.value:,.0f} {units.name}/s, median of {rate.n}",
    ]
    if rate.low is not None and rate.high is not None:
        lines.append(f"blocks from {rate.low:,.0f} to {rate.high:,.0f}")
    return (*lines, f"warm-up {point.warmup_seconds:.2g} s, excluded")


def speed_caption(found: ThroughputFinding) -> str:
    blocks = sorted({point.tokens_per_second.n for point in found.points})
    return (
        f"Median of n = {format_list(blocks)} timed blocks per size after warm-up, alone on the device. Bars reach "
        "from the slowest to the fastest block."
    )


def probe_hover(unit: str) -> str:
    return f"micro-batch %{{x:,}}: %{{y:.3f}} {unit}<extra></extra>"


def trace_hover(unit: str) -> str:
    return f"micro-batch %{{x:,}}: %{{y:.3f}} {unit}, predicted<extra></extra>"


def trace_name(found: Capacity) -> str:
    """The name of the traced curve, which is moved by what runs used beyond it where that is known."""
    return "trace + unaccounted memory" if found.unseen_bytes else "trace"


def failed_name(on_line: bool) -> str:
    """`on_line`: points without a peak are drawn on the fitted line."""
    return "did not fit (drawn on the line)" if on_line else "did not fit"


def describe_failed(point: MemoryPoint) -> tuple[str, ...]:
    return f"micro-batch {point.micro_batch_size:,} did not fit", probe_reason(point)[:160]


def memory_caption(found: Capacity, measured: Sequence[MemoryPoint], limit_drawn: bool) -> str:
    """`measured`: probes that ran and recorded a peak."""
    failed = sum(not point.fits for point in found.points)
    text = f"n = {format_plural(len(measured), 'probe')} that ran"
    if failed:
        text += f", and {failed:,} that did not fit"
    if found.line:
        line = found.line
        text += (
            f". The line through {line.n} {found.line_is} sizes costs {line.slope / 2**20:.3g} MiB per sample "
            f"(R² {line.r_squared:.3f}, largest residual {line.largest_residual / 2**20:.1f} MiB)"
        )
    if found.limit_bytes and not limit_drawn:
        text += ". The limit is far above this plot"
    return f"{text}."
