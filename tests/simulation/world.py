"""One machine with one study: its disk, its processes, what hits them, and what they have promised.

Every operation of a process on the disk passes through `World.operate`, which lets others run before it and after it,
counts it, and carries out the mishap that is due.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import NamedTuple, TypeVar

from tests.simulation.disk import SCRATCH, MemoryDisk, MemoryFile, MemoryLock
from tests.simulation.faults import Hit, Mishap, Plan
from tests.simulation.scheduler import FOREVER, Killed, Process, Scheduler

from batchlab.core.files import FileState

FOLDER = Path("/studies/s")
STANDSTILLS = (10.0, 55.0, 90.0)
"""Seconds: less than a worker may be silent, more, and more than the study's lock is waited for."""

_ENDS = {Hit.KILL_STUDY, Hit.KILL_WORKER, Hit.KILL_GROUP, Hit.POWER_CUT}

Answer = TypeVar("Answer")

_WRITES = {"write", "create", "append", "rename", "make_folder", "try_lock", "make_temporary_folder"}
_OPENS = {"read", "names", "create", "append", "try_lock", "sync_folder", "make_temporary_folder"}
_CHANGES = _WRITES | {"sync", "sync_folder", "remove", "remove_folder"}
_ALL = _WRITES | _OPENS | {"sync", "state", "remove", "remove_folder"}
_RAISED_BY = {
    errno.ENOSPC: _WRITES | {"sync"},
    errno.EIO: _ALL,
    errno.ESTALE: _ALL,
    errno.ENOLCK: {"try_lock"},
    errno.EMFILE: _OPENS,
}


class Point(NamedTuple):
    """Where something can be hit: the operation, the kind of file, and the functions of batchlab that lead there."""

    operation: str
    file: str
    function: str
    caller: str  # the first function outside storage


@dataclass(eq=False)
class Member:
    """A process of a study: the study's own, or a worker.

    ended_by: is told the exit code. fate_in: operations until it is killed, or stalls.
    """

    process: Process
    group: Group
    ended_by: Callable[[int], None] = lambda exit_code: None
    fate_in: int | None = None
    exit_code: int = -9
    stalls: bool = False


@dataclass(eq=False)
class Group:
    """A study's process and its workers. `sick`: the error that each of their operations raises."""

    members: list[Member] = field(default_factory=list)
    sick: int = 0

    @property
    def study(self) -> Member:
        return self.members[0]

    @property
    def orphaned(self) -> bool:
        """Whether the study's process was killed, so that its workers will end."""
        return self.study.process.killed


class World:
    """Everything that processes share, and what happens to it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dice = Random(f"{plan.seed}")
        self.disk = MemoryDisk()
        self.scheduler = Scheduler(self.dice, switching=plan.switching)
        self.operations = 0
        self.points: set[Point] = set()  # that a process passed
        self.hits: list[tuple[Mishap, Point]] = []
        self.promised: dict[Path, bytes] = {}
        self.flipped: list[Path] = []
        self.may_fail = False  # a run may have been recorded as failed with reason
        self.healthy = False  # workers do their duty
        self.left_behind = False  # a process was killed that may have had a temporary folder
        self.said: list[str] = []
        self.violations: list[str] = []
        self.trace: list[tuple[object, ...]] = []
        self.counts: Counter[str] = Counter()
        self._due = list(plan.mishaps)
        self._renamed: dict[Path, bytes] = {}

    def heal(self) -> None:
        """Nothing happens from here on."""
        self._due = []
        self.healthy = True

    def operate(
        self,
        member: Member,
        operation: str,
        path: Path,
        action: Callable[[], Answer],
        torn: Callable[[], object] = lambda: None,
    ) -> Answer:
        """Carry out an operation of a process, unless something happens instead. `torn`: a half of it."""
        process = member.process
        process.turn()
        self.operations += 1
        point = _point(operation, path)
        self.points.add(point)
        self.trace.append((self.operations, process.name, operation, point.file))
        self._count_down(member)
        self._hit(member, point, path, torn, after=False)
        if member.group.sick and operation in _RAISED_BY[member.group.sick]:
            torn()
            raise OSError(member.group.sick, os.strerror(member.group.sick), str(path))
        self.disk.owner_process = process
        answer = action()
        self._note(operation, path)
        self._hit(member, point, path, torn, after=True)
        process.turn()
        return answer

    def end(self, member: Member, exit_code: int = -9) -> None:
        """End a process; nothing that it does from here on happens."""
        if member.process.ended or member.process.killed:
            return
        self.scheduler.kill(member.process)
        self.disk.end_process(member.process)
        member.ended_by(exit_code)

    def end_group(self, group: Group, *, orphans: bool) -> None:
        """End a study's process, and its workers at once or a few operations later."""
        self.left_behind = True
        self.end(group.study)
        for worker in group.members[1:]:
            if orphans:
                worker.fate_in, worker.stalls = self.dice.randrange(1, 40), False
                worker.process.wake()
            else:
                self.end(worker)

    def cut_power(self) -> None:
        """End all processes, and forget a part of what was not synced."""
        self.left_behind = True
        for process in list(self.scheduler.processes):
            self.scheduler.kill(process)
        self.disk.cut_power(self.dice)

    def _count_down(self, member: Member) -> None:
        if member.fate_in is None:
            return
        member.fate_in -= 1
        if member.fate_in > 0:
            return
        while member.stalls and not member.group.orphaned:
            member.process.sleep(FOREVER)
        self.end(member, member.exit_code)
        raise Killed

    def _hit(self, member: Member, point: Point, path: Path, torn: Callable[[], object], *, after: bool) -> None:
        mishap = next((each for each in self._due if self._fits(each, member, point, after=after)), None)
        if mishap is None:
            return
        self._due.remove(mishap)
        self.hits.append((mishap, point))
        self.counts[mishap.hit.value] += 1
        self.left_behind |= mishap.hit in (Hit.ERROR_ONCE, Hit.ERROR_FOREVER)
        self.trace.append(("     ", mishap.hit, "after it" if mishap.after else "before it"))
        if not mishap.after and self._ends(mishap.hit, member) and self.dice.random() < 0.5:
            torn()
        match mishap.hit:
            case Hit.KILL_STUDY:
                self.end_group(member.group, orphans=True)
            case Hit.KILL_GROUP:
                self.end_group(member.group, orphans=False)
            case Hit.KILL_WORKER:
                self.end(member)
            case Hit.POWER_CUT:
                self.cut_power()
            case Hit.ERROR_ONCE:
                torn()
                raise OSError(mishap.error, os.strerror(mishap.error), str(path))
            case Hit.ERROR_FOREVER:
                member.group.sick = mishap.error
            case Hit.FLIP:
                self._flip()
            case Hit.STOP:
                self._stand_still(member)
            case Hit.CLOCK:
                self.scheduler.jumped += self.dice.choice((-400 * 86400.0, 3600.0, 10 * 365 * 86400.0))
                if self.dice.random() < 0.5:
                    self.scheduler.seconds += 3600.0
        member.process.require_alive()

    def _ends(self, hit: Hit, member: Member) -> bool:
        """Whether this process ends at once: a worker first finishes what it was doing where its study is killed."""
        return hit in _ENDS and (hit is not Hit.KILL_STUDY or member is member.group.study)

    def _fits(self, mishap: Mishap, member: Member, point: Point, *, after: bool) -> bool:
        if mishap.moment > self.operations or mishap.after is not after:
            return False
        if mishap.waits and point.operation not in _CHANGES and mishap.hit not in (Hit.ERROR_ONCE, Hit.ERROR_FOREVER):
            return False
        worker = member is not member.group.study
        match mishap.hit:
            case Hit.KILL_WORKER:
                return worker
            case Hit.KILL_STUDY | Hit.KILL_GROUP:
                return not member.group.study.process.killed
            case Hit.ERROR_ONCE | Hit.ERROR_FOREVER:
                return not after and point.operation in _RAISED_BY[mishap.error]
            case Hit.FLIP:
                return bool(self._flippable())
            case _:
                return True

    def _flippable(self) -> dict[str, list[Path]]:
        kinds: dict[str, list[Path]] = {}
        for path in self.disk.files(FOLDER) if self.disk.state(FOLDER) is not None else []:
            state = self.disk.state(path)
            if state is not None and state.size:
                kinds.setdefault(kind_of(path), []).append(path)
        return kinds

    def _flip(self) -> None:
        kinds = self._flippable()
        path = self.dice.choice(kinds[self.dice.choice(sorted(kinds))])
        state = self.disk.state(path)
        assert state is not None
        bit = self.dice.randrange(8 * state.size)
        self.disk.flip(path, bit)
        self.flipped.append(path)
        self.trace.append(("      bit", bit, "of", path))

    def _stand_still(self, member: Member) -> None:
        seconds = self.dice.choice(STANDSTILLS)
        self.may_fail |= member is not member.group.study and seconds > STANDSTILLS[0]
        until = self.scheduler.seconds + seconds
        while self.scheduler.seconds < until:
            member.process.sleep(until - self.scheduler.seconds)

    def _note(self, operation: str, path: Path) -> None:
        """What the study may rely on from here on: a record or decision whose folder was synced after its rename."""
        if operation == "rename" and path.name in ("record.json", "decisions.json"):
            self._renamed[path] = self.disk.read(path)
        elif operation == "remove" and path.name == "record.json":
            self._renamed.pop(path, None)  # forgotten on purpose, to be done again
            self.promised.pop(path, None)
        elif operation == "sync_folder":
            for kept in [each for each in self._renamed if each.parent == path]:
                self.promised[kept] = self._renamed.pop(kept)


class WorldFile:
    """An open file of a process."""

    def __init__(self, files: WorldFiles, path: Path, file: MemoryFile) -> None:
        self._files = files
        self._path = path
        self._file = file

    def write(self, content: bytes) -> None:
        half = bytes(content)[: len(content) // 2]
        self._files.do("write", self._path, lambda: self._file.write(content), lambda: self._file.write(half))

    def read(self, start: int, size: int) -> bytes:
        return self._files.do("read", self._path, lambda: self._file.read(start, size))

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._files.do("sync", self._path, self._file.sync)

    def close(self) -> None:
        self._file.close()


class WorldFiles:
    """`batchlab.core.files.Files` as one process sees it."""

    def __init__(self, world: World, member: Member) -> None:
        self._world = world
        self._disk = world.disk
        self._member = member

    def do(
        self,
        operation: str,
        path: Path,
        action: Callable[[], Answer],
        torn: Callable[[], object] = lambda: None,
    ) -> Answer:
        return self._world.operate(self._member, operation, path, action, torn)

    def state(self, path: Path) -> FileState | None:
        return self.do("state", path, lambda: self._disk.state(path))

    def names(self, folder: Path) -> list[str]:
        return self.do("names", folder, lambda: self._disk.names(folder))

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        return self.do("read", path, lambda: self._disk.read(path, start, size))

    def create(self, path: Path) -> WorldFile:
        return WorldFile(self, path, self.do("create", path, lambda: self._disk.create(path)))

    def append(self, path: Path) -> WorldFile:
        return WorldFile(self, path, self.do("append", path, lambda: self._disk.append(path)))

    def rename(self, source: Path, target: Path) -> None:
        self.do("rename", target, lambda: self._disk.rename(source, target))

    def remove(self, path: Path) -> None:
        self.do("remove", path, lambda: self._disk.remove(path))

    def make_folder(self, path: Path) -> None:
        self.do("make_folder", path, lambda: self._disk.make_folder(path))

    def remove_folder(self, path: Path) -> None:
        self.do("remove_folder", path, lambda: self._disk.remove_folder(path))

    def sync_folder(self, path: Path) -> None:
        self.do("sync_folder", path, lambda: self._disk.sync_folder(path))

    def writable(self, folder: Path) -> bool:
        return self._disk.writable(folder)

    def make_temporary_folder(self) -> Path:
        return self.do("make_temporary_folder", SCRATCH, self._disk.make_temporary_folder)

    def try_lock(self, path: Path, owner: str) -> MemoryLock | None:
        return self.do("try_lock", path, lambda: self._disk.try_lock(path, owner))


@cache
def kind_of(path: Path) -> str:
    """The path without what differs between runs: `runs/train/record.json`."""
    if path.is_relative_to(FOLDER):
        parts: tuple[str, ...] = path.relative_to(FOLDER).parts or (".",)
    else:
        parts = ("scratch", *path.parts[3:]) if path.is_relative_to(SCRATCH) else ("outside", *path.parts[2:])
    return "/".join(re.sub(r"^([a-z]+)-[0-9a-f-]+.*$", r"\1", re.sub(r"\.\d+\.", ".N.", part)) for part in parts)


def _point(operation: str, path: Path) -> Point:
    """The innermost function of batchlab that is on its way to this operation, and the first outside storage."""
    function = ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:  # the simulation's own frames come first
        name = _name_of(frame.f_code, frame.f_globals["__name__"])
        if name:
            function = function or name
            if not name.startswith("storage."):
                return Point(operation, kind_of(path), function, name)
        frame = frame.f_back
    return Point(operation, kind_of(path), function, "")


@cache
def _name_of(code: CodeType, module: str) -> str:
    """`storage.store.Store.decide`; empty for what is not of batchlab."""
    return f"{module.removeprefix('batchlab.')}.{code.co_qualname}" if module.startswith("batchlab.") else ""
