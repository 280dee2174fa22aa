"""Start the ranks of one run and end together with them: `python -m batchlab.engines.rank_group SIZE PROGRAM…`.

To the engine the group is one worker: its input goes to every rank, its output is that of rank 0, and it ends as the
rank that decided it. Each rank is told its place as torchrun would tell it (`core.ranks`), and may see one CUDA device.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from batchlab.core.ranks import LISTENER
from batchlab.engines.cards import visible_cards
from batchlab.engines.worker import die_with_parent

_HERE = "127.0.0.1"

_SETTLE_SECONDS = 0.3
"""A rank that fails because rank 0 has ended is not what ended the group."""


def rank_environment(rank: int, size: int, port: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of one rank: its place, its CUDA device, and connections that stay on this machine."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    local = {name: inherited.get(name, loopback) for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    cards = visible_cards(inherited)  # a launcher may show all of them, and set no variable
    own = {"CUDA_VISIBLE_DEVICES": cards[rank]} if len(cards) >= size else {}
    return {**inherited, **local, **place, **own, "MASTER_ADDR": _HERE, "MASTER_PORT": str(port)}


class RankGroup:
    """The processes of all ranks. To be used in the main thread, which receives signals."""

    def __init__(self, size: int, program: Sequence[str]) -> None:
        listener = socket.create_server((_HERE, 0), backlog=2 * size)
        port = listener.getsockname()[1]
        self._ranks = []
        for rank in range(size):
            environment = rank_environment(rank, size, port, os.environ)
            if rank == 0:
                environment[LISTENER] = str(listener.fileno())
            self._ranks.append(
                subprocess.Popen(
                    program,
                    stdin=subprocess.PIPE,
                    stdout=None if rank == 0 else subprocess.DEVNULL,
                    env=environment,
                    pass_fds=[listener.fileno()] if rank == 0 else [],
                    bufsize=0,
                )
            )
        listener.close()

    def relay_input(self) -> None:
        """Send this process's input to every rank, and its end."""
        while content := os.read(0, 65536):
            for rank in self._ranks:
                assert rank.stdin is not None
                with suppress(BrokenPipeError):
                    rank.stdin.write(content)
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.close()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on: the ranks agree when they stop."""
        for rank in self._ranks:
            rank.send_signal(number)

    def wait(self) -> int:
        """Wait for rank 0, or for another rank that fails, end the others, and return how that one ended."""
        while True:
            ended = [rank.poll() for rank in self._ranks]
            failed = [code for code in ended if code]
            if ended[0] is None and failed:
                time.sleep(_SETTLE_SECONDS)
            first = self._ranks[0].poll()
            if first is not None or failed:
                for rank in self._ranks:
                    rank.kill()
                return first if first is not None else failed[0]
            time.sleep(0.05)


def _end_as(code: int) -> NoReturn:
    """Exit with the code, or by the signal, with which a rank ended."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def main(arguments: Sequence[str]) -> NoReturn:
    """Run a group to its end."""
    die_with_parent(os.getppid())
    group = RankGroup(int(arguments[0]), arguments[1:])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, group.stop)
    threading.Thread(target=group.relay_input, daemon=True).start()
    _end_as(group.wait())


if __name__ == "__main__":
    main(sys.argv[1:])
