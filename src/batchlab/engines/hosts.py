"""Machines that a study's workers run on: this one, others behind ssh, or what a launcher such as srun allocates."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from batchlab.core.batch import Frozen
from batchlab.core.errors import InputError, quote, sentence_from_validation
from batchlab.core.parse import MOST_WORKERS
from batchlab.core.settings import read_toml
from batchlab.core.worker import WorkerCommand
from batchlab.engines.cards import visible_cards
from batchlab.engines.command import HERE
from batchlab.engines.resources import usable_cores

_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=10")
"""No questions, and no endless wait for a machine that has gone."""

_WORKER = "batchlab.engines.worker"

_RAY = (sys.executable, "-P", "-m", "batchlab.engines.ray_relay")
"""What the launcher `ray` is, which Ray has no command for."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where workers run, and how many at a time.

    name: what people call it. workers: training runs at a time. cores: of all its workers together. cards: GPUs that
    its workers are spread over, or of each allocation; empty: each sees what it finds. allocates: each worker has an
    allocation of its own.
    """

    name: str
    command: WorkerCommand
    workers: int
    cores: int
    cards: tuple[str, ...] = ()
    allocates: bool = False

    @property
    def worker_cores(self) -> int:
        """Cores of a worker that runs alone."""
        return self.cores // self.workers if self.allocates else self.cores

    @property
    def threads(self) -> int:
        """Threads of each worker where all of them run."""
        return max(1, self.cores // self.workers)

    def workers_at(self, threads: int) -> int:
        """Workers with so many threads that run at a time."""
        return max(1, min(self.workers, self.cores // threads))

    def holds(self, ranks: int, device: str) -> bool:
        """Whether a run on so many devices finds them here. Any number of processes can share a CPU."""
        return ranks == 1 or device != "cuda" or len(self.cards) >= ranks

    def places(self, ranks: int, device: str) -> int:
        """Runs at a time, each as fast as one that is alone here."""
        if self.allocates:
            return self.workers
        return max(1, len(self.cards) // ranks) if device == "cuda" else 1


def this_machine(
    workers: int, *, cores: int | None = None, cards: Sequence[str] | None = None, command: WorkerCommand = HERE
) -> Host:
    """Workers started here, without a launcher. cores, cards: default: those this process may use."""
    seen = visible_cards() if cards is None else tuple(cards)
    return Host("this machine", command, workers, cores or usable_cores(), seen)


def measuring_cores(hosts: Sequence[Host]) -> int:
    """Cores of what measures alone, on the first host or, without hosts, here."""
    return hosts[0].worker_cores if hosts else usable_cores()


class Place(Frozen):
    """How workers get to a machine, before anything is known about it: a `[[host]]` of a hosts.toml, or `--launch`."""

    name: str = Field("", description="What messages call it; default: its ssh target or launcher.")
    ssh: str = Field("", description="A machine to reach over ssh, without a password: gpu1 or me@gpu1.")
    launch: str | tuple[str, ...] = Field(
        (),
        description="A command that starts each worker in an allocation of its own: srun -N1 -n1, or ray --gpus 1.",
    )
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] | None = Field(
        None, description="Training runs at a time; default: one per GPU, else one per core, and one with `launch`."
    )
    python: str = Field(
        sys.executable, description="The Python there that has batchlab; default: the same path as here."
    )
    environment: dict[str, str] = Field(default_factory=dict, description="Environment variables of its workers.")

    @model_validator(mode="after")
    def _require_one_way(self) -> Place:
        if self.ssh and self.launch:
            raise ValueError("a host is reached by ssh or by launch, not by both")
        if self.ssh.startswith("-"):
            raise ValueError("ssh takes the name of a machine, not an option")
        return self

    @property
    def title(self) -> str:
        """What messages call it."""
        launch = self.launch if isinstance(self.launch, str) else shlex.join(self.launch)
        return self.name or self.ssh or launch or "this machine"

    @property
    def prefix(self) -> tuple[str, ...]:
        """The launcher's arguments, before the program to be started. No shell of ours sees them."""
        if self.ssh:
            return (*_SSH, self.ssh)
        words = tuple(shlex.split(self.launch)) if isinstance(self.launch, str) else self.launch
        return (*_RAY, *words[1:], "--") if words[:1] == ("ray",) else words

    def command(self, module: str) -> WorkerCommand:
        """How a module of batchlab is started there, in this process's directory."""
        program = (self.python, "-P", "-m", module)
        if not self.prefix:
            return WorkerCommand(program, self.environment)
        there = (*program, "--launched-in", os.getcwd())
        return WorkerCommand(there, self.environment, self.prefix, through_shell=bool(self.ssh))

    def host(self, cores: int, cards: tuple[str, ...], devices: int = 1) -> Host:
        """The host behind it, which has so many cores and these cards for one worker or, over ssh, for all.

        devices: how many a run shares.
        """
        command = self.command(_WORKER)
        if not self.prefix:
            return this_machine(self.workers or max(1, len(cards) // devices), cores=cores, cards=cards)
        if self.launch:
            workers = self.workers or 1
            return Host(self.title, command, workers, cores * workers, cards, allocates=True)
        return Host(self.title, command, self.workers or max(1, (len(cards) or cores) // devices), cores, cards)


class _HostsFile(Frozen):
    host: Annotated[tuple[Place, ...], Field(min_length=1)]


def launched(text: str, workers: int | None) -> tuple[Place, ...]:
    """The place of `--launch TEXT`. Raises InputError where the text cannot be split into arguments."""
    try:
        place = Place(launch=text, workers=workers)
        if not place.prefix:
            raise ValueError("it is empty")
    except ValueError as error:
        raise InputError(f"--launch {quote(text)} is no command: {error}; give one such as 'srun -N1 -n1'.") from None
    return (place,)


def read_hosts(path: Path) -> tuple[Place, ...]:
    """The places of a hosts.toml. Raises InputError saying what is wrong with it."""
    try:
        places = _HostsFile.model_validate(read_toml(path.read_text(encoding="utf-8"))).host
    except OSError as error:
        raise InputError(f"--hosts {path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        raise InputError(f"{path}: {sentence_from_validation(error, ('host', *Place.model_fields))}") from None
    except ValueError as error:
        raise InputError(f"{path} is no TOML file: {error}.") from None
    titles = [place.title for place in places]
    if twice := next((title for title in titles if titles.count(title) > 1), None):
        raise InputError(f"{path} has two hosts called {quote(twice)}; give each a `name` of its own.")
    return places
