"""A study is hit at every kind of file operation it makes; the same command then goes on and ends as if nothing were.

The real store, session and engine run in this process on the simulated device, through a `Files` that stops the process
or fails an operation. Documents are off: they are made from the records and are no condition for running.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.injections import injection

from batchlab.core.errors import BatchlabError
from batchlab.core.experiment import build_experiment
from batchlab.core.files import FileState, HeldLock, OpenFile
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.storage.files import DISK
from batchlab.storage.store import Store
from batchlab.storage.tables import outcomes_csv
from batchlab.study.progress import SilentView
from batchlab.study.study import Stage, run_study
from batchlab.study.task_source import resolve_task

EXPERIMENT = build_experiment(
    merge(
        resolve_task("simulated"),
        {
            "batch": {"global_batch_sizes": (8,)},
            "sweep": {"search": "grid", "learning_rates": (0.8,), "seeds": 1, "confirm": 0, "max_extensions": 0},
            "budget": {"token_budget": 512},
            "evaluation": {"points": 2, "samples": 16},
            "noise": {"points": 0},
            "model": {"samples": 1024},
        },
    )
)


class Killed(BaseException):
    """The process is gone: nothing that would run after this does anything."""


class HitFiles:
    """The disk, until operation number `at`: before it, and `forever` before all later ones, `hit` is called.

    A hit that raises Killed ends the process: its locks are free, and no further operation happens. Operations are
    named, so that the kinds of them can be listed: `rename s/runs/trainrun/record.json`.
    """

    def __init__(self, at: int = -1, hit: Callable[[Path], None] | None = None, *, forever: bool = False) -> None:
        self.at = at
        self.operations: list[str] = []
        self._hit = hit
        self._forever = forever
        self._dead = False
        self._locks: list[HeldLock] = []

    def do(self, name: str, path: Path, action: Callable[[], Any], *, reads: bool = False) -> Any:
        if self._dead:
            raise Killed
        if reads:
            return action()
        self.operations.append(f"{name} {kind_of(path)}")
        number = len(self.operations) - 1
        if self._hit is not None and (number == self.at or (self._forever and number > self.at)):
            try:
                self._hit(path)
            except Killed:
                self._dead = True
                for lock in self._locks:
                    lock.release()
                raise
        return action()

    def state(self, path: Path) -> FileState | None:
        return self.do("state", path, lambda: DISK.state(path), reads=True)

    def names(self, folder: Path) -> list[str]:
        return self.do("names", folder, lambda: DISK.names(folder), reads=True)

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        return self.do("read", path, lambda: DISK.read(path, start, size), reads=True)

    def create(self, path: Path) -> OpenFile:
        return HitFile(self, path, self.do("create", path, lambda: DISK.create(path)))

    def append(self, path: Path) -> OpenFile:
        return HitFile(self, path, self.do("append", path, lambda: DISK.append(path)))

    def rename(self, source: Path, target: Path) -> None:
        self.do("rename", target, lambda: DISK.rename(source, target))

    def remove(self, path: Path) -> None:
        self.do("remove", path, lambda: DISK.remove(path))

    def make_folder(self, path: Path) -> None:
        self.do("make_folder", path, lambda: DISK.make_folder(path))

    def remove_folder(self, path: Path) -> None:
        self.do("remove_folder", path, lambda: DISK.remove_folder(path))

    def sync_folder(self, path: Path) -> None:
        self.do("sync_folder", path, lambda: None)  # the disk outlives these tests

    def writable(self, folder: Path) -> bool:
        return self.do("writable", folder, lambda: DISK.writable(folder), reads=True)

    def make_temporary_folder(self) -> Path:
        return self.do("make_temporary_folder", Path(), DISK.make_temporary_folder)

    def try_lock(self, path: Path, owner: str) -> HeldLock | None:
        lock: HeldLock | None = self.do("try_lock", path, lambda: DISK.try_lock(path, owner))
        if lock is not None:
            self._locks.append(lock)
        return lock


class HitFile:
    """An open file whose writes and syncs are counted."""

    def __init__(self, files: HitFiles, path: Path, file: OpenFile) -> None:
        self._files = files
        self._path = path
        self._file = file

    def write(self, content: bytes) -> None:
        self._files.do("write", self._path, lambda: self._file.write(content))

    def read(self, start: int, size: int) -> bytes:
        return self._file.read(start, size)

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._files.do("sync", self._path, lambda: None)

    def close(self) -> None:
        self._file.close()


def kind_of(path: Path) -> str:
    """The path without what differs between runs: `runs/trainrun/record.json`, `study/.decisions.json.copy`."""
    parts = path.parts[path.parts.index("s") :] if "s" in path.parts else ("scratch", *path.parts[3:])
    return "/".join(re.sub(r"^(train)?(inspect|check|trace|capacity|throughput)?-.*", r"\1run", part) for part in parts)


def run(folder: Path, files: HitFiles, until: Stage) -> list[str]:
    """Begin or continue the study; the operations this took."""
    run_study(
        EXPERIMENT,
        folder,
        lambda path, workers: InlineEngine(path, files=files),
        SilentView(),
        until=until,
        files=files,
        write_documents=False,
    )
    return files.operations


def kinds(operations: list[str], *, last: bool = False) -> list[int]:
    """The number of the first operation of each kind, or of the last one."""
    numbered = list(enumerate(operations))
    return sorted({name: number for number, name in (numbered if last else reversed(numbered))}.values())


def conclusions(folder: Path) -> list[bytes]:
    """What a study says that a repetition says to the bit; the notes begin with the date, so not their digest."""
    store = Store.open(folder)
    decided = store.decisions().model_copy(update={"notes_digest": None}).as_json()
    return [outcomes_csv(store.records()).encode(), decided.encode(), (folder / "experiment.json").read_bytes()]


def require_whole(folder: Path) -> None:
    """Nothing is left over, and nothing is damaged."""
    assert not list(folder.rglob("*.batchlab-tmp"))
    assert not list(folder.glob("runs/*/checkpoint"))
    assert not list(folder.rglob("*.damaged*"))
    assert Store.open(folder).damaged() == []


UNTIL = [
    pytest.param("check", False, id="check"),
    pytest.param("sweep", False, id="sweep", marks=pytest.mark.slow),
    pytest.param("sweep", True, id="sweep, last", marks=pytest.mark.chaos),
]
"""The operations of opening a study and of one run, which are those of all runs; and all of a small study. Of each kind
the first operation is hit, or the last one."""

Record = Callable[[str, Any], None]


def kill(path: Path) -> None:
    raise Killed


@pytest.mark.parametrize(("until", "last"), UNTIL)
def test_killed_before_any_kind_of_operation(tmp_path: Path, until: Stage, last: bool, record_property: Record) -> None:
    operations = run(tmp_path / "s", HitFiles(), until)
    points = kinds(operations, last=last)
    print(f"{len(operations)} operations of {len(points)} kinds")
    names = [operations[point] for point in points]
    row = injection("a kill before each kind of file operation", len(points), histories=len(points), points=names)
    record_property("injection", row)
    for point in points:
        folder = tmp_path / str(point) / "s"
        with pytest.raises(Killed):
            run(folder, HitFiles(point, kill), until)
        run(folder, HitFiles(), until)
        assert conclusions(folder) == conclusions(tmp_path / "s"), operations[point]
        require_whole(folder)


ERRORS = (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.ENOLCK, errno.EMFILE, errno.EACCES, errno.EROFS, errno.ENOSYS)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize(("until", "last"), UNTIL)
def test_any_kind_of_operation_fails(
    tmp_path: Path, until: Stage, last: bool, forever: bool, record_property: Record
) -> None:
    """The command ends with a sentence, or does without; the next one goes on."""
    operations = run(tmp_path / "s", HitFiles(), until)
    points, refused = kinds(operations, last=last), 0
    for nth, point in enumerate(points):
        number = ERRORS[nth % len(ERRORS)]

        def fail(path: Path, number: int = number) -> None:
            raise OSError(number, os.strerror(number), str(path))

        folder = tmp_path / str(point) / "s"
        try:
            run(folder, HitFiles(point, fail, forever=forever), until)
        except BatchlabError:
            refused += 1
        run(folder, HitFiles(), until)
        assert conclusions(folder) == conclusions(tmp_path / "s"), (operations[point], errno.errorcode[number])
        require_whole(folder)
    what = f"an error at each kind of file operation, {'and at all later ones' if forever else 'once'}"
    names = [operations[point] for point in points]
    row = injection(what, len(points), histories=len(points), refused=refused, points=names)
    record_property("injection", row)
