"""The two small files without which a study means nothing, experiment.json and decisions.json: sealed, and kept twice.

The copy is hidden beside the file and written first, so it is never older. Where the file is damaged or gone, the copy
takes its place.
"""

from __future__ import annotations

from pathlib import Path

from batchlab.core.errors import InputError
from batchlab.core.files import Files
from batchlab.storage.atomic import storage_errors, write_atomically
from batchlab.storage.sealed import Broken, Damage, DamagedFile, seal, unseal


class KeptFile:
    """One such file. Writing and repairing require the study's lock."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.copy = path.with_name(f".{path.name}.copy")
        self._files = files

    def read(self) -> bytes | None:
        """The JSON without its seal, from the copy where the file is damaged or gone; None where neither exists.

        Raises InputError where there is no whole one of the two.
        """
        try:
            content = self._whole(self.path)
        except Broken:
            content = self._copied()
            if content is None:
                raise InputError(
                    f"{self.path} is damaged, and so is its copy; restore it, or start a new study with --out."
                ) from None
        return self._copied() if content is None else content

    def damage(self) -> DamagedFile | None:
        """What is wrong with the file; None where it is whole, or was never written."""
        try:
            content = self._whole(self.path)
        except Broken as broken:
            return DamagedFile(self.path, broken.damage)
        if content is None and self._copied() is not None:
            return DamagedFile(self.path, Damage.MISSING)
        return None

    def write(self, text: str) -> None:
        """Replace both, the copy first."""
        sealed = seal(text)
        write_atomically(self.copy, sealed, self._files)
        write_atomically(self.path, sealed, self._files)

    def repair(self) -> DamagedFile | None:
        """Set a damaged file aside and put the copy in its place; what was wrong, None where nothing was.

        A copy that differs from a whole file is made again, so that one of the two is whole after the next damage.
        """
        damaged = self.damage()
        copied = self._copied()
        if damaged is None:
            content = self.read()
            if content is not None and content != copied:
                with storage_errors(self.path):
                    write_atomically(self.copy, self._files.read(self.path), self._files)
            return None
        if copied is None:
            return None
        with storage_errors(self.path):
            set_aside(self.path, self._files)
            write_atomically(self.path, self._files.read(self.copy), self._files)
        return damaged

    def _copied(self) -> bytes | None:
        try:
            return self._whole(self.copy)
        except Broken:
            return None

    def _whole(self, path: Path) -> bytes | None:
        content = read_file(path, self._files)
        return None if content is None else unseal(content).content


def read_file(path: Path, files: Files) -> bytes | None:
    """The content of a file; None where it is missing. Raises Broken where something else is in its place."""
    state = files.state(path)
    if state is None:
        return None
    if state.kind == "folder":
        raise Broken(Damage.NOT_A_FILE)
    with storage_errors(path):
        try:
            return files.read(path)
        except FileNotFoundError:  # removed meanwhile, or a link to nothing
            return None


def set_aside(path: Path, files: Files) -> Path | None:
    """Rename what is at `path` to `NAME.damaged`, or `NAME.damaged-2` and so on; None where nothing is there."""
    if files.state(path) is None:
        return None
    number = 1
    while files.state(aside := path.with_name(f"{path.name}.damaged" + (f"-{number}" if number > 1 else ""))):
        number += 1
    files.rename(path, aside)
    return aside
