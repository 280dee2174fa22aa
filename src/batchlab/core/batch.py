"""Batch sizes and the units they are counted in.

`global_batch_size` samples make one optimizer step. They are split over `data_parallel_size` devices and, on each of
them, into `grad_accum_steps` micro-batches of at most `micro_batch_size` samples, which is what must fit in memory.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from batchlab.core.errors import InputError


class Frozen(BaseModel):
    """Base of every value batchlab writes to disk: immutable, no unknown fields, JSON round trip."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, ser_json_inf_nan="strings")


class Unit(StrEnum):
    """What budgets and throughput are counted in."""

    TOKENS = "tokens"
    SAMPLES = "samples"


class BatchLayout(Frozen):
    """How one global batch is laid out over devices and micro-batches.

    When the sizes do not divide, micro-batches differ by at most one sample; `micro_batch_size` is the largest.
    """

    global_batch_size: PositiveInt
    micro_batch_size: PositiveInt
    data_parallel_size: PositiveInt = 1
    sequence_length: PositiveInt = 1

    @model_validator(mode="after")
    def _pieces_fit(self) -> Self:
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
        return math.ceil(self.global_batch_size / self.data_parallel_size)

    @property
    def grad_accum_steps(self) -> int:
        """Forward/backward passes per optimizer step on one device."""
        return math.ceil(self._largest_share / self.micro_batch_size)

    @property
    def tokens_per_step(self) -> int:
        """Tokens (or samples, where the sequence length is 1) consumed by one optimizer step."""
        return self.global_batch_size * self.sequence_length

    def micro_batch_sizes(self, rank: int = 0) -> tuple[int, ...]:
        """Sizes of the micro-batches device `rank` runs in one step, in order; all ranks together sum to the global."""
        share, extra = divmod(self.global_batch_size, self.data_parallel_size)
        mine = share + (1 if rank < extra else 0)
        passes = math.ceil(mine / self.micro_batch_size)
        small, larger = divmod(mine, passes)
        return (small + 1,) * larger + (small,) * (passes - larger)


def require_devices(devices: int) -> None:
    """InputError unless a person's number of data-parallel devices is at least 1."""
    if devices < 1:
        raise InputError(f"--devices {devices}: give at least 1.")


def lay_out(
    global_batch_size: int, max_micro_batch_size: int, *, data_parallel_size: int = 1, sequence_length: int = 1
) -> BatchLayout:
    """The layout with the fewest, evenest micro-batches none of which exceeds `max_micro_batch_size`.

    64 samples where 48 fit become 32 + 32, not 48 + 16: equal pieces cost the least memory for the same passes.
    """
    share = math.ceil(global_batch_size / data_parallel_size)
    passes = math.ceil(share / max_micro_batch_size)
    return BatchLayout(
        global_batch_size=global_batch_size,
        micro_batch_size=math.ceil(share / passes),
        data_parallel_size=data_parallel_size,
        sequence_length=sequence_length,
    )


_BYTE_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_bytes(text: object) -> int:
    """`"16GiB"`, `"700 MiB"`, `"1.5gb"` or a number of bytes, as bytes.

    Raises ValueError naming what is possible.
    """
    if isinstance(text, int):
        return text
    if not isinstance(text, str):  # a number with a point, from TOML or JSON
        raise ValueError(f"{text!r} is not an amount of memory; write it like 16GiB, 700MiB or 1073741824")
    cleaned = text.strip().lower().replace(" ", "")
    number = cleaned.rstrip("abcdefghijklmnopqrstuvwxyz")
    suffix = cleaned[len(number) :] or "b"
    try:
        value = float(number) * _BYTE_UNITS[suffix]
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not an amount of memory; write it like 16GiB, 700MiB or 1073741824") from None
    if not (math.isfinite(value) and value >= 1):
        raise ValueError(f"{text!r} is not a positive amount of memory; write it like 16GiB or 700MiB")
    return int(value)


def headroom_bytes(headroom: str, limit: int) -> int:
    """Bytes of `"5%"` of a limit, or of an amount like `"512MiB"`. ValueError naming what is possible."""
    text = headroom.strip()
    if not text.endswith("%"):
        return 0 if text == "0" else parse_bytes(text)
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"{headroom!r} is not a share of the limit from 0% to below 100%")
    return math.ceil(share * limit)


def require_headroom(headroom: object) -> str:
    """The text itself where it is a headroom: `5%`, `512MiB` or `0`; else ValueError."""
    if isinstance(headroom, int) and not isinstance(headroom, bool):
        headroom = str(headroom)
    if not isinstance(headroom, str):
        raise ValueError(f"{headroom!r} is not a headroom; write it like 5%, 512MiB or 0")
    headroom_bytes(headroom, 1)
    return headroom


def format_bytes(count: float) -> str:
    """Bytes for people: GiB (2³⁰) from a tenth of a GiB upwards, MiB below."""
    if abs(count) >= 0.1 * 2**30:
        return f"{count / 2**30:.2f} GiB"
    return f"{count / 2**20:.1f} MiB"


def format_count(count: float) -> str:
    """Counts for people: 8,192 stays exact, larger ones become 512k, 51.2M, 1.3B."""
    for factor, suffix in ((1e9, "B"), (1e6, "M")):
        if abs(count) >= factor:
            return f"{count / factor:.3g}{suffix}"
    if abs(count) >= 100_000:
        return f"{count / 1e3:.3g}k"
    return f"{count:,.0f}"
