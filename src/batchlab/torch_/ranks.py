"""The ranks of a run over torch.distributed: sums, and how the death of one of them is noticed.

Numbers and bytes of the host go over gloo; gradients over the device's own backend, which is NCCL on CUDA. A process
joins once and leaves by exiting, so that no rank takes the end of a finished one for a loss.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from batchlab.core.errors import InputError
from batchlab.core.out_of_memory import as_out_of_memory
from batchlab.core.protocols import Interrupted, OutOfMemory
from batchlab.core.ranks import LISTENER, Membership, RankLost

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

Result = TypeVar("Result")

JOIN_SECONDS = 300.0
"""Ranks may start so far apart: one may still encode its data."""

BEAT_SECONDS = 1.0
LOST_BEATS = 7
"""A rank that does not answer at so many beats in a row is lost, so that a stopped one is noticed within 10 s."""

_CAUSE_SECONDS = 2.0
"""A rank that raised an error says so before it ends; so long its cause is looked for."""

_ENDED_BY_OTHERS_SECONDS = 15.0
"""Whoever started the ranks ends all of them once one is lost; a rank waits so long for it."""


class TorchRanks:
    """All ranks of this process's default group."""

    def __init__(self, membership: Membership) -> None:
        self.rank, self.size, _ = membership

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum over all ranks of each number."""
        total = torch.tensor(values, dtype=torch.float64)
        with losing_ranks():
            dist.all_reduce(total)
        return [float(value) for value in total]

    def gather(self, content: bytes) -> list[bytes]:
        """The content of every rank."""
        lengths = [
            int(length) for length in self.sum([len(content) * (rank == self.rank) for rank in range(self.size)])
        ]
        own = torch.zeros(max(1, *lengths), dtype=torch.uint8)
        own[: len(content)] = _tensor(content)
        found = [torch.empty_like(own) for _ in range(self.size)]
        with losing_ranks():
            dist.all_gather(found, own)
        return [part[:length].numpy().tobytes() for part, length in zip(found, lengths, strict=True)]

    def broadcast(self, content: bytes) -> bytes:
        """The content of rank 0."""
        [length] = self.sum([len(content) if self.rank == 0 else 0])
        sent = _tensor(content) if self.rank == 0 else torch.empty(int(length), dtype=torch.uint8)
        with losing_ranks():
            dist.broadcast(sent, src=0)
        return content if self.rank == 0 else sent.numpy().tobytes()

    def begin_sum(self, values: Tensor) -> Callable[[], None]:
        """Begin to replace the tensor by its sum over all ranks. What is returned waits for the end of it."""
        with losing_ranks():
            work: Any = dist.all_reduce(values, async_op=True)

        def wait() -> None:
            with losing_ranks():
                work.wait()

        return wait


def run_on_ranks(size: int, device: torch.device, body: Callable[[TorchRanks], Result]) -> Result:
    """Join the ranks that this process's environment describes, and run `body` as one of them.

    Where another rank raised an error, rank 0 raises it as its own; every other rank exits once it said what happened.
    Where another rank was lost, this process waits for its end.
    """
    membership = Membership.of()
    if membership.size != size:
        raise InputError(
            f"This run is laid out for {size} devices, and {membership.size} processes were started for it "
            f"(WORLD_SIZE); start {size}."
        )
    store = _store(membership)
    _join(store, membership, device)
    _Heart(membership).start()
    try:
        return body(TorchRanks(membership))
    except Interrupted:
        raise
    except RankLost:
        if membership.rank == 0:
            _raise_cause(store)
        time.sleep(_ENDED_BY_OTHERS_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)
        raise
    except Exception as error:
        if membership.rank == 0:
            raise
        _tell_cause(store, membership, error)
        leave()  # rank 0 tells the engine


def leave() -> NoReturn:
    """End this process with exit status 0, without finalizing the interpreter.

    A thread of gloo may free the tensors of a sum long after the sum has ended. If the interpreter is being finalized
    by then, the process aborts (torch 2.13: "terminate called without an active exception").
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextmanager
def losing_ranks() -> Iterator[None]:
    """An error of the communication means that a rank is lost."""
    try:
        yield
    except RuntimeError as error:
        if as_out_of_memory(error) is not None:
            raise
        raise RankLost(str(error)) from error


def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


def _client(seconds: float) -> Store:
    store: Store = dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,
    )
    return store


def _scoped(store: Store) -> Store:
    """torchrun keeps one store over its restarts."""
    scope = f"batchlab/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    scoped: Store = dist.PrefixStore(scope, store)  # type: ignore[attr-defined]
    return scoped


def _store(membership: Membership) -> Store:
    """What all ranks write to and read from. Rank 0 keeps it, unless an agent of torchrun does."""
    if membership.rank or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _scoped(_client(JOIN_SECONDS))
    listener = os.environ.get(LISTENER)
    port = int(os.environ["MASTER_PORT"])
    if listener is None:  # started without torchrun's agent: srun, or by hand
        bound = socket.create_server((os.environ["MASTER_ADDR"], port))
        listener = str(bound.detach())
    return _scoped(
        dist.TCPStore(  # type: ignore[attr-defined]
            os.environ["MASTER_ADDR"],
            port,
            is_master=True,
            timeout=timedelta(seconds=JOIN_SECONDS),
            wait_for_workers=False,
            master_listen_fd=int(listener),
        )
    )


def _join(store: Store, membership: Membership, device: torch.device) -> None:
    backend = f"cpu:gloo,{device.type}:nccl" if device.type == "cuda" else "gloo"
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"Several processes can share a run on cuda and on cpu, not on {device.type}; use one device.")
    try:
        dist.init_process_group(backend, store=store, rank=membership.rank, world_size=membership.size)
    except (RuntimeError, ValueError) as error:
        raise RankLost(str(error)) from error


def _tell_cause(store: Store, membership: Membership, error: Exception) -> None:
    """Leave for rank 0 what this rank raised."""
    traceback.print_exception(error)
    memory = as_out_of_memory(error)
    cause = {
        "memory": memory is not None,
        "certain": memory is not None and memory.certain,
        "input": isinstance(error, InputError),
        "text": f"{type(error).__name__}: {error}" if not isinstance(error, InputError | OutOfMemory) else str(error),
        "rank": membership.rank,
    }
    with suppress(RuntimeError):
        store.set("cause", json.dumps(cause))


def _raise_cause(store: Store) -> None:
    """Raise what another rank raised; return where none has said anything."""
    deadline = time.monotonic() + _CAUSE_SECONDS
    while time.monotonic() < deadline:
        with suppress(RuntimeError):
            if store.check(["cause"]):
                _raise(json.loads(store.get("cause")))
        time.sleep(0.05)


def _raise(cause: dict[str, Any]) -> None:
    text = f"Rank {cause['rank']}: {cause['text']}"
    if cause["memory"]:
        raise OutOfMemory(text, certain=cause["certain"])
    if cause["input"]:
        raise InputError(text)
    raise RuntimeError(text)


class _Heart:
    """Shows the other ranks that this process lives, and watches them, from a thread with a connection of its own.

    It counts its own beats, not seconds: where all ranks stand still together, as on a suspended machine, none is lost.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._store = _scoped(_client(LOST_BEATS * BEAT_SECONDS))
        self._seen = [b""] * membership.size
        self._missed = [0] * membership.size
        self._unanswered = 0

    def start(self) -> None:
        """Beat until the process ends."""
        self._store.set(self._key(self._membership.rank), "0")
        for live in (self._live, self._watch_store):
            threading.Thread(target=live, name="batchlab-ranks", daemon=True).start()

    def _key(self, rank: int) -> str:
        return f"beat/{rank}"

    def _live(self) -> None:
        beat = 0
        while True:
            beat += 1
            try:
                self._store.set(self._key(self._membership.rank), str(beat))
                lost = self._watch()
                caused = self._membership.rank == 0 and self._store.check(["cause"])
            except RuntimeError:
                lost, caused = [0], False  # whoever keeps the store does not answer
            self._unanswered = 0
            if lost:
                self._end(lost[0])
            if caused:
                self._end_with_cause()
            time.sleep(BEAT_SECONDS)

    def _watch_store(self) -> None:
        """A store whose process is stopped answers nothing, for ever: no request to it has a time limit."""
        while self._unanswered < LOST_BEATS:
            time.sleep(BEAT_SECONDS)
            self._unanswered += 1
        self._end(0)

    def _end(self, lost: int) -> None:
        """Whoever started the ranks then ends all of them."""
        print(f"Lost: rank {lost}.", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def _watch(self) -> list[int]:
        """Ranks that have missed too many beats. One that has not begun to beat is still joining."""
        for rank in range(self._membership.size):
            key = self._key(rank)
            if rank == self._membership.rank or not self._store.check([key]):
                continue
            said = self._store.get(key)
            self._missed[rank] = self._missed[rank] + 1 if said == self._seen[rank] else 0
            self._seen[rank] = said
        return [rank for rank, missed in enumerate(self._missed) if missed >= LOST_BEATS]

    def _end_with_cause(self) -> None:
        """Rank 0 normally meets the end of a failed rank in its next sum; it does not while it waits for its device."""
        cause = json.loads(self._store.get("cause"))
        self._unanswered = -LOST_BEATS
        time.sleep(LOST_BEATS * BEAT_SECONDS)
        print(f"Rank {cause['rank']}: {cause['text']}", file=sys.stderr, flush=True)
        os._exit(1)
