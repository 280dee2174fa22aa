"""What happens to a study, and when: drawn from a seed, before the study begins.

Moments are counted in file operations of all processes together, so a moment is the same in every replay.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import NamedTuple


class Hit(StrEnum):
    """Kinds of mishap."""

    KILL_STUDY = "kill -9 of a study's process"
    KILL_WORKER = "kill -9 of a worker"
    KILL_GROUP = "kill -9 of study and workers"
    POWER_CUT = "power cut"
    ERROR_ONCE = "a file operation fails once"
    ERROR_FOREVER = "file operations fail until the command ends"
    FLIP = "a bit flips in a file"
    STOP = "a process stands still for minutes"
    CLOCK = "the clock jumps"


ERRORS = (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.ENOLCK, errno.EMFILE)


class Mishap(NamedTuple):
    """One of them, at the first operation from `moment` on that it can hit.

    after: that operation has happened (else it has not). waits: for one that changes the disk. error: what is raised.
    """

    hit: Hit
    moment: int
    after: bool
    waits: bool
    error: int


class Quirk(StrEnum):
    """What a worker does instead of its duty."""

    NONE = "none"
    DIES_STARTING = "a worker ends before it is ready"
    DIES_BY_OWN_CODE = "a worker's own code ends it"
    STALLS = "a worker stalls"
    TORN_LINE = "a worker dies within a line"
    GARBAGE = "a worker sends a torn line and goes on"
    CLAIMS_FINISHED = "a worker claims to have finished"
    SPEAKS_OF_ANOTHER = "a worker speaks of another run"
    DIES_BEFORE_SAYING = "a worker dies between record and message"
    SAYS_TWICE = "a worker says everything twice"


RECORDED = {Quirk.DIES_BY_OWN_CODE, Quirk.STALLS}
"""What ends in a record of a failed run, which --retry-failed repeats."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides beforehand.

    workers: scripted worker processes (else the runs are executed in the study's process).
    """

    seed: int
    processes: int
    workers: bool
    switching: float
    mishaps: tuple[Mishap, ...]
    quirk: Quirk
    quirk_share: float  # of workers that have it

    @property
    def flips(self) -> bool:
        return any(mishap.hit is Hit.FLIP for mishap in self.mishaps)


_OPERATIONS = 700
"""About as many as an undisturbed study makes."""


def plan(seed: int) -> Plan:
    """What happens in the history of this seed."""
    dice = Random(seed)
    processes = dice.choice((1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 5, 8))
    workers = dice.random() < 0.75
    quirk = dice.choice(list(Quirk)) if workers and dice.random() < 0.5 else Quirk.NONE
    possible = [hit for hit in Hit if workers or hit is not Hit.KILL_WORKER]
    moment, mishaps = dice.randrange(_OPERATIONS), list[Mishap]()
    flipped = False
    for _ in range(dice.choice((1, 1, 2, 3, 5)) if quirk is Quirk.NONE else dice.choice((0, 0, 1, 2))):
        hit = dice.choice([each for each in possible if each is not Hit.FLIP or not flipped])
        flipped |= hit is Hit.FLIP
        mishaps.append(Mishap(hit, moment, dice.random() < 0.5, dice.random() < 0.8, dice.choice(ERRORS)))
        moment += round(dice.expovariate(1 / dice.choice((5, 50, 300)))) + 1  # the next may hit the recovery
    return Plan(seed, processes, workers, dice.choice((0.02, 0.2, 0.6)), tuple(mishaps), quirk, dice.choice((0.2, 0.6)))
