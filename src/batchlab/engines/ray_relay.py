"""Starts a program on a node of a Ray cluster and passes its pipes on, as srun does. The only module that imports ray.

    python -m batchlab.engines.ray_relay [--cpus N] [--gpus N] [--resource NAME=N] [--address A] -- PROGRAM …

An actor that holds these resources starts the program on whatever node Ray gives it. It exits as the program does, and
with NODE_LOST where the node or the actor is gone. Once this process ends, Ray ends the actor, the program's input
closes, and a launched worker ends by itself.

Written for Ray 2.60.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from batchlab.core.errors import InputError
from batchlab.engines.resources import ALLOCATED_CORES

NODE_LOST = 75
"""Exit code: nothing is known about the program, which may be tried again (EX_TEMPFAIL of sysexits.h)."""

_PIECE = 65536


class Program:
    """The actor: the program and its pipes. Ray calls its methods on threads, each of which may wait."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
            bufsize=0,
        )
        self._written: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        for number, pipe in ((1, self._process.stdout), (2, self._process.stderr)):
            assert pipe is not None
            threading.Thread(target=self._follow, args=(number, pipe.fileno()), daemon=True).start()

    def _follow(self, number: int, descriptor: int) -> None:
        while piece := os.read(descriptor, _PIECE):
            self._written.put((number, piece))
        self._written.put((number, b""))

    def read(self) -> tuple[int, bytes]:
        """Wait for what it writes next: to which descriptor, and what; nothing where that one was closed."""
        return self._written.get()

    def send(self, content: bytes) -> None:
        """Write to its input; nothing closes it."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            if content:
                pipe.write(content)
            else:
                pipe.close()
        except BrokenPipeError:
            pass  # it has ended, and `wait` tells how

    def wait(self) -> int:
        """Its exit code, when it has ended; 128 and the number of the signal that ended it."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def main(arguments: Sequence[str] | None = None) -> int:
    """Relay one program. Returns the exit code."""
    given, program = _parse(sys.argv[1:] if arguments is None else arguments)
    out = os.dup(1)
    os.dup2(2, 1)  # Ray prints to standard output, which belongs to the program
    try:
        _connect(given.address)
    except InputError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    import ray

    actor = (
        ray.remote(Program)
        .options(num_cpus=given.cpus, num_gpus=given.gpus, resources=dict(given.resource), max_concurrency=4)
        .remote(program, {ALLOCATED_CORES: str(given.cpus)})
    )
    threading.Thread(target=_send_input, args=(actor,), daemon=True).start()
    try:
        _pass_output_on(actor, out)
        return int(ray.get(actor.wait.remote()))
    except ray.exceptions.RayError as error:
        print(f"Ray: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return NODE_LOST


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="ray", description="Start workers on Ray.", allow_abbrev=False)
    parser.add_argument("--cpus", type=int, default=1, help="cores of the program; default: 1")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of the program; default: 0")
    parser.add_argument("--resource", type=_resource, action="append", default=[], help="NAME=AMOUNT of a node")
    here = os.environ.get("RAY_ADDRESS", "auto")
    parser.add_argument("--address", default=here, help="of the cluster; default: RAY_ADDRESS")
    words = list(arguments)
    end = words.index("--")
    return parser.parse_args(words[:end]), words[end + 1 :]


def _resource(text: str) -> tuple[str, float]:
    name, _, amount = text.partition("=")
    return name, float(amount)


def _connect(address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise InputError(f"Ray is not installed here ({error}); install it: pip install ray.") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"No Ray cluster is reached at {address}: {error}") from None


def _send_input(actor: Any) -> None:
    import ray

    try:
        while piece := os.read(0, _PIECE):
            ray.get(actor.send.remote(piece))
        ray.get(actor.send.remote(b""))
    except ray.exceptions.RayError:
        pass  # the other thread meets the same loss


def _pass_output_on(actor: Any, out: int) -> None:
    """Until both of the program's pipes are closed."""
    import ray

    to = {1: out, 2: 2}
    while to:
        number, piece = ray.get(actor.read.remote())
        if not piece:
            del to[number]
        while piece:
            piece = piece[os.write(to[number], piece) :]


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Ray's threads do not keep the process alive
