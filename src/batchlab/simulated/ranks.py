"""Ranks as threads of one process, for devices that take no time. Each thread has a simulated device of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from batchlab.core.protocols import Interrupted
from batchlab.core.ranks import RankLost, Ranks

Result = TypeVar("Result")


_here = threading.local()


def worker_here() -> int:
    """The simulated device of this thread: that of its rank, else the first."""
    return getattr(_here, "worker", 0)


class _Exchange:
    """What the threads of one run have put up for each other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.parts: list[Any] = [None] * size
        self.errors: list[Exception] = []


class ThreadRanks:
    """One thread's view of the others. Sums are added up in the order of the ranks."""

    def __init__(self, rank: int, exchange: _Exchange) -> None:
        self.rank, self.size = rank, exchange.size
        self._exchange = exchange

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum over all ranks of each number."""
        return [float(sum(column)) for column in zip(*self._swap(list(values)), strict=True)]

    def gather(self, content: bytes) -> list[bytes]:
        """The content of every rank."""
        return self._swap(content)

    def broadcast(self, content: bytes) -> bytes:
        """The content of rank 0."""
        sent: bytes = self._swap(content)[0]
        return sent

    def _swap(self, part: Any) -> list[Any]:
        exchange = self._exchange
        exchange.parts[self.rank] = part
        try:
            exchange.barrier.wait()
            found = list(exchange.parts)
            exchange.barrier.wait()  # nobody puts up the next part before all have read this one
        except threading.BrokenBarrierError:
            raise RankLost("another rank has ended") from None
        return found


def run_in_threads(size: int, body: Callable[[Ranks], Result]) -> Result:
    """Run `body` on `size` ranks, rank 0 in this thread, and return what it returned there.

    Whatever one of them raises ends all of them, and is raised here.
    """
    exchange = _Exchange(size)

    def follow(rank: int) -> None:
        _here.worker = rank
        try:
            body(ThreadRanks(rank, exchange))
        except (RankLost, Interrupted):
            pass  # rank 0 is told the same
        except Exception as error:  # noqa: BLE001 - raised again in the thread of rank 0
            exchange.errors.append(error)
            exchange.barrier.abort()

    threads = [threading.Thread(target=follow, args=(rank,), daemon=True) for rank in range(1, size)]
    for thread in threads:
        thread.start()
    try:
        return body(ThreadRanks(0, exchange))
    except RankLost:
        raise exchange.errors[0] from None
    finally:
        exchange.barrier.abort()
        for thread in threads:
            thread.join()
