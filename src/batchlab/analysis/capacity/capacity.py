"""The largest micro-batch, and what is known about the memory around it. Nothing here reads or runs anything."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from batchlab.core.batch import BatchLayout, lay_out
from batchlab.core.record import PhasePeak, TracePoint
from batchlab.search.memory_curve import MemoryCurve, needed_bytes

CARDS_GIB = (16, 24, 40, 48, 80, 141)
"""Memory of the accelerators people ask about, in GiB."""

CARD_HEADROOM = 0.05
"""Share of a card that is left free when sizes for it are named: its context, libraries' workspaces, fragmentation."""

CONSERVATIVE_SHARE = 0.8
"""The conservative size uses at most this share of the limit."""


@dataclass(frozen=True, slots=True)
class Line:
    """y = intercept + slope·x, fitted by least squares; residuals: (x, y − intercept − slope·x) of every point."""

    intercept: float
    slope: float
    r_squared: float
    residuals: tuple[tuple[float, float], ...]

    @property
    def n(self) -> int:
        return len(self.residuals)

    @property
    def largest_residual(self) -> float:
        return max(abs(residual) for _, residual in self.residuals)


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """One probe: whole steps at a size, in a fresh process."""

    micro_batch_size: int
    fits: bool
    peak_bytes: int | None
    reason: str = ""
    batch_shapes: tuple[tuple[int, ...], ...] | None = None  # where samples differ in size: of the worst batch's arrays
    train_loss: float | None = None  # of its last step, where that is a number
    finite_loss: bool = True


@dataclass(frozen=True, slots=True)
class MemoryVariant:
    """What one saving buys: the largest micro-batch with it, and how fast that is. `why_not`: it cannot be had."""

    name: str
    max_micro_batch_size: int | None = None
    status: Literal["predicted", "verified"] = "predicted"
    tokens_per_second: float | None = None
    measured_at: int | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What the smallest size would need with one saving, by a trace; asked where nothing fits."""

    name: str
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The largest micro-batch. `predicted`: by traces only; `verified`: it ran; `proved`: and one more failed; `none`:
    nothing fits. Bytes are above a warmed-up process on a CPU, and those of the allocator on an accelerator.
    """

    points: tuple[MemoryPoint, ...]
    max_micro_batch_size: int | None
    status: Literal["none", "predicted", "verified", "proved"]
    searched_up_to: int  # no larger size was of interest
    smallest_failed: int | None
    limit_bytes: int | None
    limit_is: str = ""  # what the limit bounds, e.g. "VmData above a warmed-up baseline"
    headroom_bytes: int = 0  # of the limit, kept free on purpose
    line: Line | None = None  # bytes against micro-batch size from the knee up
    line_is: Literal["measured", "traced"] = "measured"
    traced: tuple[TracePoint, ...] = ()
    untraceable: str = ""  # why the model could not be traced
    reserved: bool = False  # the device counts what its caching allocator reserves, not what is in use
    grad_accum_steps: int = 1
    steps: int = 0  # whole optimizer steps spent on probes
    worker_bytes: int | None = None  # the most that a probing process held, itself included
    variants: tuple[MemoryVariant, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    global_batch_sizes: tuple[int, ...] = ()  # that layouts are wanted for
    sequence_length: int = 1

    @property
    def budget_bytes(self) -> int | None:
        """What a size may need at most: the limit less the headroom."""
        return None if self.limit_bytes is None else self.limit_bytes - self.headroom_bytes

    @property
    def reached_the_end(self) -> bool:
        """The largest size of interest fits, so larger ones may as well."""
        return self.smallest_failed is None and (self.max_micro_batch_size or 0) >= self.searched_up_to

    @property
    def out_of_memory(self) -> int:
        """Probes that failed."""
        return sum(not point.fits for point in self.points)

    @property
    def peak_bytes(self) -> int | None:
        """Measured at the largest size; None where it did not run, or its peak could not be read."""
        return next(
            (p.peak_bytes for p in self.points if p.fits and p.micro_batch_size == self.max_micro_batch_size), None
        )

    @property
    def worst_batch(self) -> tuple[tuple[int, ...], ...] | None:
        """Shapes of the arrays that ran at the largest size; None where it did not run or samples are of one size."""
        return next((p.batch_shapes for p in self.points if p.micro_batch_size == self.max_micro_batch_size), None)

    @property
    def left_bytes(self) -> int | None:
        """What the largest size leaves of the limit, headroom included."""
        if self.limit_bytes is None or self.max_micro_batch_size is None:
            return None
        peak = self.peak_bytes or self.needed_bytes(self.max_micro_batch_size)
        return None if peak is None else self.limit_bytes - round(peak)

    @property
    def curve(self) -> MemoryCurve | None:
        """Traced bytes against size."""
        return MemoryCurve.through(phase_bytes(self.traced, self.reserved)) if self.traced else None

    @property
    def knee(self) -> int | None:
        """The smallest size from which on the memory line holds; below it another phase is the peak.

        Always by bytes in use: what an allocator reserves levels off near the limit, where it gives segments back.
        """
        return MemoryCurve.through(phase_bytes(self.traced, reserved=False)).knee if self.traced else None

    @property
    def unseen_bytes(self) -> int | None:
        """Measured less traced at the largest measured size: buffers inside kernels, the allocator's own."""
        curve, measured = self.curve, self._measured
        return None if curve is None or not measured else round(measured[max(measured)] - curve.at(max(measured)))

    @property
    def phases(self) -> tuple[PhasePeak, ...]:
        """The traced peak of each phase at the largest size, or at the traced size nearest to it."""
        size = self.max_micro_batch_size or 1
        if not self.traced:
            return ()
        return min(self.traced, key=lambda point: abs(point.micro_batch_size - size)).phases

    def needed_bytes(self, micro_batch_size: int) -> float | None:
        """What a size needs by everything traced and measured; None where that is nothing."""
        curve, measured = self.curve, self._measured
        return needed_bytes(curve, measured, micro_batch_size) if curve or measured else None

    def largest_within(self, limit_bytes: float) -> int | None:
        """Prediction for another limit; 0 where nothing fits, None where nothing is known to predict from."""
        if self.curve is None and len(self._measured) < 2:
            return None
        unseen = max(self.unseen_bytes or 0, 0) if self.curve else 0
        if self.curve is not None:
            return self.curve.largest_within(limit_bytes - unseen, 2**24)
        low, high = 0, 2**24
        while low < high:
            middle = (low + high + 1) // 2
            if (self.needed_bytes(middle) or math.inf) <= limit_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def cards(self) -> tuple[tuple[int, int], ...]:
        """(GiB, predicted largest size) of usual cards, CARD_HEADROOM of each left free."""
        sizes = ((gib, self.largest_within(gib * 2**30 * (1 - CARD_HEADROOM))) for gib in CARDS_GIB)
        return tuple((gib, size) for gib, size in sizes if size is not None)

    @property
    def conservative(self) -> int | None:
        """The largest size that leaves a fifth of the limit free: room for a longer run's surprises."""
        if self.max_micro_batch_size is None or self.limit_bytes is None:
            return None
        size = self.largest_within(CONSERVATIVE_SHARE * self.limit_bytes)
        return None if not size else min(size, self.max_micro_batch_size)

    @property
    def data_parallel(self) -> int | None:
        """The largest size where each device also keeps a second copy of the gradients, as DDP's buckets do."""
        budget, phases = self.budget_bytes, self.phases
        if budget is None or not phases or self.max_micro_batch_size is None:
            return None
        copy = max(phase.gradient_bytes for phase in phases)
        size = self.largest_within(budget - copy)
        return None if size is None else min(size, self.max_micro_batch_size)

    def layout(self, global_batch_size: int, devices: int = 1) -> BatchLayout:
        """How a global batch is laid out in the fewest, evenest micro-batches that fit. ValueError where none does."""
        if not self.max_micro_batch_size:
            raise ValueError("no micro-batch fits, so no global batch can be laid out")
        return lay_out(
            global_batch_size,
            self.max_micro_batch_size,
            data_parallel_size=devices,
            sequence_length=self.sequence_length,
        )

    @property
    def layouts(self) -> tuple[BatchLayout, ...]:
        """Of the wanted global batches, on one device; empty where nothing fits."""
        return tuple(self.layout(size) for size in self.global_batch_sizes) if self.max_micro_batch_size else ()

    @property
    def accumulation(self) -> int | None:
        """The largest size of which two make a step of the largest: the same step in about half the activations."""
        size = self.max_micro_batch_size or 0
        return (size + 1) // 2 if size > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON takes it; bytes, except in names."""
        line = self.line
        return {
            "max_micro_batch_size": self.max_micro_batch_size,
            "status": self.status,
            "limit_bytes": self.limit_bytes,
            "limit_is": self.limit_is,
            "headroom_bytes": self.headroom_bytes,
            "peak_bytes": self.peak_bytes,
            "left_bytes": self.left_bytes,
            "unseen_bytes": self.unseen_bytes,
            "knee": self.knee,
            "line": asdict(line) | {"n": line.n, "largest_residual": line.largest_residual, "is": self.line_is}
            if line
            else None,
            "phases": [phase.model_dump() for phase in self.phases],
            "untraceable": self.untraceable,
            "worst_batch": self.worst_batch,
            "probes": [asdict(point) for point in self.points],
            "traced": [point.model_dump() for point in self.traced],
            "steps": self.steps,
            "out_of_memory": self.out_of_memory,
            "recommendations": {
                "maximum": self._recommendation(self.max_micro_batch_size),
                "conservative": self._recommendation(self.conservative),
                "accumulation": self._recommendation(self.accumulation),
                "data_parallel": self._recommendation(self.data_parallel),
            },
            "layouts": [
                {
                    "global_batch_size": layout.global_batch_size,
                    "micro_batch_size": layout.micro_batch_size,
                    "grad_accum_steps": layout.grad_accum_steps,
                }
                for layout in self.layouts
            ],
            "cards": {f"{gib}GiB": size for gib, size in self.cards},
            "variants": [asdict(variant) for variant in self.variants],
            "remedies": [asdict(remedy) for remedy in self.remedies],
            "grad_accum_steps": self.grad_accum_steps,
        }

    def _recommendation(self, size: int | None) -> dict[str, Any] | None:
        needed = self.needed_bytes(size) if size else None
        return {"micro_batch_size": size, "needed_bytes": None if needed is None else round(needed)} if size else None

    @property
    def _measured(self) -> dict[int, int]:
        return {p.micro_batch_size: p.peak_bytes for p in self.points if p.fits and p.peak_bytes is not None}


def phase_bytes(traced: tuple[TracePoint, ...], reserved: bool) -> list[tuple[int, tuple[float, ...]]]:
    """Traced points as a memory curve takes them: the bytes of each phase, or what the allocator would reserve."""
    return [
        (
            point.micro_batch_size,
            (float(point.reserved_bytes),)
            if reserved and point.reserved_bytes is not None
            else tuple(float(phase.total_bytes) for phase in point.phases),
        )
        for point in traced
    ]
