"""The largest micro-batch, and what is known about the memory around it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from batchlab.analysis.capacity.host_memory_fallback import HostMemoryFallback
from batchlab.analysis.capacity.sharded import InFlight, ModelStates, Sharding
from batchlab.core.batch import BatchLayout, lay_out
from batchlab.core.record import PhasePeak, TracePoint
from batchlab.search.forecast import needed_bytes
from batchlab.search.memory_curve import MemoryCurve
from batchlab.storage.decisions import LimitKind, SlowProbe

CARDS_GIB = (16, 24, 40, 48, 80, 141)
"""Memory of the accelerators people ask about, in GiB."""

CARD_HEADROOM = 0.05
"""Share of a card left free in predictions for it: for its context, workspaces of libraries, and fragmentation."""

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
    """One probe: whole steps at a size, in a process of its own. `reason`: why it did not fit, as recorded."""

    micro_batch_size: int
    fits: bool
    peak_bytes: int | None
    reason: str = ""
    batch_shapes: tuple[tuple[int, ...], ...] | None = (
        None  # of the arrays of the worst batch, where samples differ in size
    )
    train_loss: float | None = None  # of its last step, where that is finite
    finite_loss: bool = True
    host_memory: HostMemoryFallback | None = None  # it ran, but not in the device's memory


@dataclass(frozen=True, slots=True)
class MemoryVariant:
    """The largest micro-batch with one memory optimization, and its speed. `why_not`: why it cannot be used here."""

    name: str
    max_micro_batch_size: int | None = None
    status: Literal["predicted", "verified"] = "predicted"
    tokens_per_second: float | None = None
    measured_at: int | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What the smallest size would need with one memory optimization, by its trace; asked where nothing fits."""

    name: str
    needed_bytes: int


@dataclass(frozen=True, slots=True)
class ShardedCapacity:
    """The largest micro-batch of each of several devices that train together, by prediction."""

    sharding: Sharding
    max_micro_batch_size: int | None
    peak_bytes: int  # at that size, or at the smallest one where nothing fits
    states: ModelStates
    in_flight: InFlight
    blocks: tuple[str, ...]  # that are gathered one at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The largest micro-batch.

    `predicted`: by traces only. `verified`: this size ran in one new process. `proved`: and one more sample failed in
    another. `none`: nothing fits.
    Bytes are those above a warmed-up process on a CPU, and those of the allocator on an accelerator.
    """

    points: tuple[MemoryPoint, ...]
    max_micro_batch_size: int | None
    status: Literal["none", "predicted", "verified", "proved"]
    searched_up_to: int  # no larger size was of interest
    smallest_failed: int | None
    limit_bytes: int | None
    forked_only: tuple[int, ...] = ()  # sizes that fit in a forked process, and did not in a new one
    limit_is: LimitKind | None = None  # what the limit bounds
    headroom_bytes: int = 0  # of the limit, kept free on purpose
    too_slow: SlowProbe | None = None  # why no larger size was of interest, where time was the reason
    line: Line | None = None  # bytes against micro-batch size from the knee up
    line_is: Literal["measured", "traced"] = "measured"
    traced: tuple[TracePoint, ...] = ()
    untraceable: str = ""  # why the model could not be traced, as recorded
    reserved: bool = False  # the device counts what its caching allocator reserves, not what is in use
    grad_accum_steps: int = 1
    up_to: int | None = None  # end of the range that starts at the largest size, where memory depends on values
    margin_bytes: int = 0  # of the budget, kept free for batches that nobody has seen
    draws: int = 0  # different batches that ran at the largest size, where memory depends on values
    steps: int = 0  # whole optimizer steps spent on probes
    worker_bytes: int | None = None  # the most that a probing process held, itself included
    variants: tuple[MemoryVariant, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    sharded: tuple[ShardedCapacity, ...] = ()  # on several devices, where that was asked
    global_batch_sizes: tuple[int, ...] = ()  # that layouts are wanted for
    sequence_length: int = 1

    @property
    def budget_bytes(self) -> int | None:
        """The most that a size may need: the limit minus the headroom."""
        return None if self.limit_bytes is None else self.limit_bytes - self.headroom_bytes

    @property
    def reached_the_end(self) -> bool:
        """Whether the largest size of interest fits, so that larger ones may fit too."""
        return self.smallest_failed is None and (self.max_micro_batch_size or 0) >= self.searched_up_to

    @property
    def out_of_memory(self) -> int:
        """The number of probes that did not fit."""
        return sum(not point.fits for point in self.points)

    @property
    def peak_bytes(self) -> int | None:
        """Peak at the largest size; None where it did not run, or its peak could not be read."""
        return next(
            (p.peak_bytes for p in self.points if p.fits and p.micro_batch_size == self.max_micro_batch_size), None
        )

    @property
    def worst_batch(self) -> tuple[tuple[int, ...], ...] | None:
        """Shapes of the arrays that ran at the largest size; None where it did not run or samples are of one size."""
        return next((p.batch_shapes for p in self.points if p.micro_batch_size == self.max_micro_batch_size), None)

    @property
    def left_bytes(self) -> int | None:
        """The part of the limit that the largest size leaves free, headroom included."""
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
        """The smallest size from which the memory line holds; below it the peak is in another phase.

        Always by bytes in use: the bytes that an allocator reserves level off near the limit, where it frees segments.
        """
        return MemoryCurve.through(phase_bytes(self.traced, reserved=False)).knee if self.traced else None

    @property
    def unseen_bytes(self) -> int | None:
        """Measured minus traced bytes at the largest measured size: kernels' buffers and the allocator's overhead."""
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
        """What a size needs by all that was traced and measured; None where nothing was."""
        curve, measured = self.curve, self._measured
        return needed_bytes(curve, measured, micro_batch_size) if curve or measured else None

    def largest_within(self, limit_bytes: float) -> int | None:
        """The largest size predicted for another limit: 0 where nothing fits, None where there is no basis for one."""
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
        """(GiB, predicted largest size) of common cards, with CARD_HEADROOM of each left free.

        Only cards whose size lies among the traced ones: the last piece of a curve may bend beyond them.
        """
        largest = max((point.micro_batch_size for point in self.traced if not point.draw_bytes), default=0)
        sizes = ((gib, self.largest_within(gib * 2**30 * (1 - CARD_HEADROOM))) for gib in CARDS_GIB)
        return tuple((gib, size) for gib, size in sizes if size is not None and size < largest)

    @property
    def conservative(self) -> int | None:
        """The largest size that leaves a fifth of the limit free, for what a longer run may add."""
        if self.max_micro_batch_size is None or self.limit_bytes is None:
            return None
        size = self.largest_within(CONSERVATIVE_SHARE * self.limit_bytes)
        return None if not size else min(size, self.max_micro_batch_size)

    @property
    def data_parallel(self) -> int | None:
        """The largest size where each device also holds a second copy of the gradients, as DDP's buckets do."""
        budget, phases = self.budget_bytes, self.phases
        if budget is None or not phases or self.max_micro_batch_size is None:
            return None
        copy = max(phase.gradient_bytes for phase in phases)
        size = self.largest_within(budget - copy)
        return None if size is None else min(size, self.max_micro_batch_size)

    def layout(self, global_batch_size: int, devices: int = 1) -> BatchLayout:
        """A global batch in the fewest and most even micro-batches that fit. Raises ValueError where none fits."""
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
        """Layouts of the wanted global batches on one device; empty where nothing fits or batches are not split."""
        if not self.max_micro_batch_size or not self.splits_batches:
            return ()
        return tuple(self.layout(size) for size in self.global_batch_sizes)

    @property
    def splits_batches(self) -> bool:
        """Whether a batch may be accumulated over several micro-batches: not where its samples influence each other."""
        return self.grad_accum_steps > 1

    @property
    def accumulation(self) -> int | None:
        """The size of which two make up the largest one: the same step with about half the activations.

        None where batches are not split.
        """
        size = self.max_micro_batch_size or 0
        return (size + 1) // 2 if size > 1 and self.splits_batches else None

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON-able values, in bytes."""
        line = self.line
        return {
            "max_micro_batch_size": self.max_micro_batch_size,
            "status": self.status,
            "forked_only": self.forked_only,
            "up_to": self.up_to,
            "margin_bytes": self.margin_bytes,
            "limit_bytes": self.limit_bytes,
            "limit_is": self.limit_is,
            "headroom_bytes": self.headroom_bytes,
            "too_slow": self.too_slow.model_dump() if self.too_slow else None,
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
            "sharded": [asdict(sharded) for sharded in self.sharded],
            "grad_accum_steps": self.grad_accum_steps,
        }

    def _recommendation(self, size: int | None) -> dict[str, Any] | None:
        needed = self.needed_bytes(size) if size else None
        return {"micro_batch_size": size, "needed_bytes": None if needed is None else round(needed)} if size else None

    @property
    def _measured(self) -> dict[int, int]:
        return {p.micro_batch_size: p.peak_bytes for p in self.points if p.fits and p.peak_bytes is not None}


def phase_bytes(traced: tuple[TracePoint, ...], reserved: bool) -> list[tuple[int, tuple[float, ...]]]:
    """Traced points as a memory curve takes them: the bytes of each phase, or those the allocator would reserve."""
    return [
        (
            point.micro_batch_size,
            (float(point.reserved_bytes),)
            if reserved and point.reserved_bytes is not None
            else tuple(float(phase.total_bytes) for phase in point.phases),
        )
        for point in traced
    ]
