"""Batch sizes and the units they are counted in.

`global_batch_size` samples make one optimizer step. They are split over `data_parallel_size` devices and, on each of
them, into `grad_accum_steps` micro-batches of at most `micro_batch_size` samples, which is what must fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from batchlab.core.errors import InputError


class Frozen(BaseModel):
    """Base of every value that batchlab writes to disk: immutable, no unknown fields, JSON round trip."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, ser_json_inf_nan="strings")


class Unit(StrEnum):
    """What budgets and throughput are counted in."""

    TOKENS = "tokens"
    SAMPLES = "samples"


class BatchLayout(Frozen):
    """How one global batch is laid out over devices and micro-batches.

    Devices have equal shares unless `shares` says otherwise. Where the sizes do not divide, shares differ by at most
    one sample, and so do the micro-batches of one device; `micro_batch_size` is the largest.
    """

    global_batch_size: PositiveInt
    micro_batch_size: PositiveInt
    data_parallel_size: PositiveInt = 1
    sequence_length: PositiveInt = 1
    shares: tuple[PositiveInt, ...] = Field(default=(), description="samples of each device; empty: equal shares")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.shares and (len(self.shares) != self.data_parallel_size or sum(self.shares) != self.global_batch_size):
            raise ValueError(
                f"the shares {' + '.join(map(str, self.shares))} are not those of {self.data_parallel_size} devices "
                f"that add up to {self.global_batch_size}"
            )
        if self.data_parallel_size > self.global_batch_size:
            raise ValueError(
                f"{self.data_parallel_size} devices cannot share a global batch of {self.global_batch_size}; "
                "use fewer devices or a larger batch"
            )
        if self.micro_batch_size > self._largest_share:
            raise ValueError(
                f"micro-batch {self.micro_batch_size} is more than one device's share ({self._largest_share}) of the "
                f"global batch {self.global_batch_size}; lower one of the two"
            )
        return self

    @property
    def _largest_share(self) -> int:
        return max(self.shares) if self.shares else math.ceil(self.global_batch_size / self.data_parallel_size)

    @property
    def grad_accum_steps(self) -> int:
        """Forward/backward passes per optimizer step on the device with the largest share."""
        return math.ceil(self._largest_share / self.micro_batch_size)

    @property
    def tokens_per_step(self) -> int:
        """Tokens (or samples, where the sequence length is 1) consumed by one optimizer step."""
        return self.global_batch_size * self.sequence_length

    def samples_before(self, rank: int) -> int:
        """Samples of a step that the devices before `rank` take."""
        return sum(self.share(before) for before in range(rank))

    def share(self, rank: int) -> int:
        """Samples of a step that device `rank` takes."""
        if self.shares:
            return self.shares[rank]
        share, extra = divmod(self.global_batch_size, self.data_parallel_size)
        return share + (1 if rank < extra else 0)

    def micro_batch_sizes(self, rank: int = 0) -> tuple[int, ...]:
        """Sizes of the micro-batches device `rank` runs in one step, in order; all ranks together sum to the global."""
        own = self.share(rank)
        passes = math.ceil(own / self.micro_batch_size)
        small, larger = divmod(own, passes)
        return (small + 1,) * larger + (small,) * (passes - larger)


MOST_DEVICES = 1_000_000


def require_devices(devices: int) -> None:
    """Raise InputError unless the given number of data-parallel devices is possible."""
    if not 1 <= devices <= MOST_DEVICES:
        raise InputError(f"--devices {devices}: give at least 1 and at most {MOST_DEVICES:,}.")


def divide(size: int, weights: Sequence[float], most: Sequence[int] = ()) -> tuple[int, ...]:
    """So many samples in proportion to the weights, at least one for each, by largest remainder (Hamilton's method).

    most: the most that each can take; empty: any number. Whoever would get less than one sample gets one, whoever would
    get more than it can take gets that, and the others share the rest in proportion. Raises InputError where they
    cannot share so many.
    """
    most = most or (size,) * len(weights)
    if len(weights) > size:
        raise InputError(f"{len(weights)} devices cannot share {size} samples, because each needs at least one.")
    if min(most) < 1 or sum(most) < size:
        raise InputError(
            f"Devices that can take at most {' + '.join(map(str, most))} samples cannot share {size}; use a smaller "
            "batch, or more devices."
        )
    shares = [0] * len(weights)
    wanted = _in_proportion(size, dict(enumerate(weights)))
    while wanted:
        bounded = {one: min(max(each, 1), most[one]) for one, each in wanted.items()}
        excess = math.fsum(bounded.values()) - math.fsum(wanted.values())
        low = [one for one, each in wanted.items() if each < 1 and excess >= 0]
        high = [one for one, each in wanted.items() if each > most[one] and excess <= 0]
        if not low and not high:
            break
        for one in (*low, *high):  # of those beyond a bound, the ones that stay there whatever the others get
            shares[one] = int(bounded[one])
            del wanted[one]
        wanted = _in_proportion(size - sum(shares), {one: weights[one] for one in wanted})
    for one, each in wanted.items():
        shares[one] = math.floor(each)
    by_remainder = sorted(wanted, key=lambda one: (shares[one] - wanted[one], -weights[one], one))
    for one in by_remainder[: size - sum(shares)]:
        shares[one] += 1
    return tuple(shares)


def _in_proportion(size: int, weights: Mapping[int, float]) -> dict[int, float]:
    total = math.fsum(weights.values())
    return {one: size * weight / total if total else size / len(weights) for one, weight in weights.items()}


def largest_divisor(size: int, most: int, multiple: int = 1) -> int:
    """The largest divisor of `size` up to `most` that is a multiple of `multiple`; `multiple` where none is."""
    divisors = (most - down for down in range(most))
    return next((one for one in divisors if size % one == 0 and one % multiple == 0), multiple)


def lay_out(
    global_batch_size: int, max_micro_batch_size: int, *, data_parallel_size: int = 1, sequence_length: int = 1
) -> BatchLayout:
    """The layout with the fewest and most even micro-batches of at most `max_micro_batch_size` samples.

    64 samples where 48 fit become 32 + 32, not 48 + 16: of layouts with as many passes, the even one needs the least
    memory.
    """
    share = math.ceil(global_batch_size / data_parallel_size)
    passes = math.ceil(share / max_micro_batch_size)
    return BatchLayout(
        global_batch_size=global_batch_size,
        micro_batch_size=math.ceil(share / passes),
        data_parallel_size=data_parallel_size,
        sequence_length=sequence_length,
    )
