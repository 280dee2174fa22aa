"""A disk in memory: `batchlab.core.files.Files` with power cuts, flipped bits, and locks that end with their process.

What was not synced may be lost in a power cut, as POSIX allows and no more strictly than `core.files` says: of a file,
any part of what was written since its last sync; of a folder's names, any of the changes since its last sync, in any
combination. A rename happens as a whole or not at all.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from batchlab.core.files import FileState

SCRATCH = Path("/scratch")
_OWNER_BYTES = 64


@dataclass(eq=False)
class FileNode:
    """A file's content, now and on the platter."""

    number: int
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    changed: int = 0  # counts up: stands for the time of the last change
    holder: MemoryLock | None = None


@dataclass(eq=False)
class FolderNode:
    """A folder's names, now and on the platter."""

    number: int
    names: dict[str, FileNode | FolderNode] = field(default_factory=dict)
    synced: dict[str, FileNode | FolderNode] = field(default_factory=dict)


Node = FileNode | FolderNode


@dataclass(eq=False)
class _Change:
    """What one operation did to names; on the platter as a whole or not at all."""

    removed: list[tuple[FolderNode, str, Node]]
    added: list[tuple[FolderNode, str, Node]]

    def touches(self, folder: FolderNode) -> bool:
        return any(each is folder for each, _, _ in (*self.removed, *self.added))

    def happen(self) -> None:
        for folder, name, node in self.removed:
            if folder.synced.get(name) is node:
                del folder.synced[name]
        for folder, name, node in self.added:
            folder.synced[name] = node


class MemoryLock:
    """The lock of a file that somebody holds."""

    def __init__(self, node: FileNode, owner: object) -> None:
        self._node = node
        self.owner = owner
        node.holder = self

    def release(self) -> None:
        if self._node.holder is self:
            self._node.holder = None


class MemoryFile:
    """A file open for appending."""

    def __init__(self, disk: MemoryDisk, node: FileNode) -> None:
        self._disk = disk
        self._node = node
        self._open = True

    def write(self, content: bytes) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._node.content += content
        self._node.changed = self._disk.tick()

    def read(self, start: int, size: int) -> bytes:
        return bytes(self._node.content[start : start + size])

    def size(self) -> int:
        return len(self._node.content)

    def sync(self) -> None:
        self._node.synced = bytes(self._node.content)

    def close(self) -> None:
        self._open = False


class MemoryDisk:
    """One file system. `owner_process` is noted in the locks that are taken, so that `end_process` can free them."""

    def __init__(self) -> None:
        self._ticks = 0
        self._root = FolderNode(self.tick())
        self._journal: list[_Change] = []
        self.owner_process: object = None
        self.make_folder(SCRATCH)
        self.sync_folder(SCRATCH.parent)

    def tick(self) -> int:
        """A number that was never given before: a time, or the number of a new file."""
        self._ticks += 1
        return self._ticks

    # Files

    def state(self, path: Path) -> FileState | None:
        node = self._find(path)
        if node is None:
            return None
        if isinstance(node, FolderNode):
            return FileState("folder", 0, 0, node.number)
        return FileState("file", len(node.content), node.changed, node.number)

    def names(self, folder: Path) -> list[str]:
        return sorted(self._folder(folder).names)

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        content = self._file(path).content
        return bytes(content[start:] if size is None else content[start : start + size])

    def create(self, path: Path) -> MemoryFile:
        if self._find(path) is not None:
            raise _error(errno.EEXIST, path)
        return MemoryFile(self, self._new_file(path))

    def append(self, path: Path) -> MemoryFile:
        found = self._find(path)
        return MemoryFile(self, self._new_file(path) if found is None else self._file(path))

    def rename(self, source: Path, target: Path) -> None:
        node = self._find(source)
        if node is None:
            raise _error(errno.ENOENT, source)
        there = self._find(target)
        if isinstance(there, FolderNode) and (isinstance(node, FileNode) or there.names):
            raise _error(errno.EISDIR if isinstance(node, FileNode) else errno.ENOTEMPTY, target)
        before, after = self._folder(source.parent), self._folder(target.parent)
        self._change(_Change([(before, source.name, node)], [(after, target.name, node)]))

    def remove(self, path: Path) -> None:
        node = self._find(path)
        if isinstance(node, FolderNode):
            raise _error(errno.EISDIR, path)
        if node is not None:
            self._change(_Change([(self._folder(path.parent), path.name, node)], []))

    def make_folder(self, path: Path) -> None:
        found = self._find(path)
        if isinstance(found, FileNode):
            raise _error(errno.EEXIST, path)
        if found is None:
            self._change(_Change([], [(self._folder(path.parent), path.name, FolderNode(self.tick()))]))

    def remove_folder(self, path: Path) -> None:
        node = self._find(path)
        if node is None:
            return
        if self._folder(path).names:
            raise _error(errno.ENOTEMPTY, path)
        self._change(_Change([(self._folder(path.parent), path.name, node)], []))

    def sync_folder(self, path: Path) -> None:
        folder = self._folder(path)
        for change in self._journal:
            if change.touches(folder):
                change.happen()
        self._journal = [change for change in self._journal if not change.touches(folder)]

    def writable(self, folder: Path) -> bool:
        self._folder(folder)
        return True

    def make_temporary_folder(self) -> Path:
        path = SCRATCH / f"batchlab-{self.tick()}"
        self.make_folder(path)
        return path

    def try_lock(self, path: Path, owner: str) -> MemoryLock | None:
        found = self._find(path)
        node = self._new_file(path) if found is None else self._file(path)
        if node.holder is not None:
            return None
        node.content[:_OWNER_BYTES] = owner.encode().ljust(_OWNER_BYTES)
        return MemoryLock(node, self.owner_process)

    # What happens to disks

    def end_process(self, process: object) -> None:
        """Free the locks of a process."""
        for node in self._nodes(self._root):
            if isinstance(node, FileNode) and node.holder is not None and node.holder.owner is process:
                node.holder.release()

    def cut_power(self, dice: Random) -> None:
        """Forget a part of what was not synced, and all locks."""
        if dice.random() < 0.5:  # a journal: what happened last is lost
            happened = self._journal[: dice.randint(0, len(self._journal))]
        else:
            share = dice.choice((0.0, 0.5, 0.9))
            happened = [change for change in self._journal if dice.random() < share]
        for change in happened:
            change.happen()
        self._journal = []
        self._come_back(self._root, dice)

    def _come_back(self, folder: FolderNode, dice: Random) -> None:
        folder.names = dict(folder.synced)
        for node in folder.names.values():
            if isinstance(node, FolderNode):
                self._come_back(node, dice)
                continue
            node.holder = None
            unsynced = node.content[len(node.synced) :]
            kept = unsynced[: dice.choice((0, dice.randint(0, len(unsynced)), len(unsynced)))]
            if kept and dice.random() < 0.3:  # a block that was not written, before one that was
                begin = dice.randrange(len(kept))
                end = dice.randint(begin, len(kept))
                kept[begin:end] = bytes(end - begin)
            node.content = bytearray(node.synced) + kept
            node.synced = bytes(node.content)

    def flip(self, path: Path, bit: int) -> None:
        """Change one bit of a file, which leaves no other trace."""
        node = self._file(path)
        node.content[bit // 8] ^= 1 << bit % 8
        if bit // 8 < len(node.synced):
            damaged = bytearray(node.synced)
            damaged[bit // 8] ^= 1 << bit % 8
            node.synced = bytes(damaged)

    def files(self, below: Path = Path("/")) -> list[Path]:
        """All files below a folder, sorted."""
        node = self._find(below)
        return sorted(below / path for path in _paths(node)) if isinstance(node, FolderNode) else []

    def held_locks(self) -> list[Path]:
        """Files that somebody has locked."""
        return [path for path in self.files() if self._file(path).holder is not None]

    # Names

    def _find(self, path: Path) -> Node | None:
        node: Node | None = self._root
        for name in path.parts[1:]:
            if not isinstance(node, FolderNode):
                return None
            node = node.names.get(name)
        return node

    def _folder(self, path: Path) -> FolderNode:
        node = self._find(path)
        if node is None:
            blocked = any(isinstance(self._find(parent), FileNode) for parent in path.parents)
            raise _error(errno.ENOTDIR if blocked else errno.ENOENT, path)
        if isinstance(node, FileNode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _file(self, path: Path) -> FileNode:
        node = self._find(path)
        if node is None:
            self._folder(path.parent)
            raise _error(errno.ENOENT, path)
        if isinstance(node, FolderNode):
            raise _error(errno.EISDIR, path)
        return node

    def _new_file(self, path: Path) -> FileNode:
        number = self.tick()
        node = FileNode(number, changed=number)
        self._change(_Change([], [(self._folder(path.parent), path.name, node)]))
        return node

    def _change(self, change: _Change) -> None:
        for folder, name, _ in change.removed:
            del folder.names[name]
        for folder, name, node in change.added:
            folder.names[name] = node
        self._journal.append(change)

    def _nodes(self, folder: FolderNode) -> Iterator[Node]:
        for node in folder.names.values():
            yield node
            if isinstance(node, FolderNode):
                yield from self._nodes(node)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def _paths(folder: FolderNode) -> Iterator[Path]:
    for name, node in folder.names.items():
        if isinstance(node, FolderNode):
            for path in _paths(node):
                yield name / path
        else:
            yield Path(name)
