"""The processes that share one run: each is a rank with a device of its own, and all of them add up what they computed.

Who starts them describes each in its environment, as torchrun does: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
MASTER_PORT. One rank needs none of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

LISTENER = "BATCHLAB_RANKS_LISTENER"
"""Environment of rank 0: the number of a socket that listens already, for the store through which the ranks meet. Only
where no agent of torchrun keeps one."""


class RankLost(Exception):
    """Another rank of the run has died, or does not answer. Nothing is known about the run itself: it is tried again,
    from its last checkpoint."""


class Ranks(Protocol):
    """What one rank sees of the others. Every method waits for all ranks, which must call the same methods in turn."""

    rank: int
    size: int

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum over all ranks of each number, in float64: the same bits on every rank. Raises RankLost."""

    def gather(self, content: bytes) -> list[bytes]:
        """The content of every rank, in their order. Raises RankLost."""

    def broadcast(self, content: bytes) -> bytes:
        """The content of rank 0. Raises RankLost."""


class _Alone:
    """The only rank of a run."""

    rank = 0
    size = 1

    def sum(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def gather(self, content: bytes) -> list[bytes]:
        return [content]

    def broadcast(self, content: bytes) -> bytes:
        return content


ALONE: Ranks = _Alone()


class Membership(NamedTuple):
    """This process's place among the ranks of a run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Membership:
        """As the environment says; the only rank where it says nothing."""
        size = int(environment.get("WORLD_SIZE", 1))
        if size == 1:
            return cls()
        return cls(int(environment["RANK"]), size, int(environment.get("LOCAL_RANK", 0)))
