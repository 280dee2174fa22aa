"""What the capacity stage is asked. Imports nothing: a command line is read before what is slow to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """What is asked of the capacity stage.

    needed: only whether this size fits; None: the largest size that fits.
    prove: also run one more sample, which must fail.
    card_bytes: predict for a CUDA device with this much memory, and run nothing.
    devices: and for so many of them that train together, with their states shared or not.
    most: no larger size is of interest.
    variants: also search with each memory optimization alone.
    verify_largest: without a memory limit, run the largest size however long its steps take (study/stages/effort.py).
    """

    needed: int | None = None
    prove: bool = False
    card_bytes: int | None = None
    devices: int = 1
    most: int | None = None
    variants: bool = False
    verify_largest: bool = False

    def spares_time(self, memory_limit: int | None) -> bool:
        """Whether a smaller size than the largest may be verified: whoever gives a limit wants to know its size."""
        return memory_limit is None and self.needed is None and not (self.verify_largest or self.prove)


LARGEST = CapacityRequest()
