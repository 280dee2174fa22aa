"""Contract test for Files."""

from __future__ import annotations

from pathlib import Path

from batchlab.core.files import Files
from batchlab.testing.requirement import require, require_raises


def check_files(files: Files, folder: Path) -> None:
    """Check what storage relies on, in `folder`, which exists and is empty; leaves it empty.

    What survives a power cut cannot be checked from inside; an implementation that simulates one checks that itself.
    Raises AssertionError for the first violated requirement.
    """
    require(files.names(folder) == [], "the contract test needs an empty folder")
    for check in (_check_writing, _check_names, _check_folders, _check_locks):
        check(files, folder)
        for name in files.names(folder):
            files.remove(folder / name)
    scratch = files.make_temporary_folder()
    require(files.names(scratch) == [], "a temporary folder must be empty")
    files.remove_folder(scratch)


def _check_writing(files: Files, folder: Path) -> None:
    path = folder / "a"
    require(files.state(path) is None, "nothing is at a path where nothing was made")
    require_raises(lambda: files.read(path), "reading a missing file must raise FileNotFoundError", FileNotFoundError)
    file = files.create(path)
    file.write(b"one")
    require(files.read(path) == b"one", "what was written must be visible before it is synced and closed")
    file.write(b"two")
    file.sync()
    require((file.size(), file.read(2, 2)) == (6, b"et"), "an open file must give its size and any part of itself")
    file.close()
    file.close()
    require_raises(
        lambda: files.create(path), "creating a file that exists must raise FileExistsError", FileExistsError
    )
    again = files.append(path)
    require(again.size() == 6, "appending must keep what is there")
    again.write(b"\x00\xff")
    again.close()
    require(files.read(path) == b"onetwo\x00\xff", "appended bytes must follow those before")
    require(files.read(path, 3) == b"two\x00\xff", "reading must begin where it is asked to")
    require(files.read(path, 3, 3) == b"two", "reading must stop after the size that was asked for")
    require(files.read(path, 6, 100) == b"\x00\xff", "reading must stop where the file ends")
    state = files.state(path)
    require(state is not None and (state.kind, state.size) == ("file", 8), f"8 bytes were written, not {state}")


def _check_names(files: Files, folder: Path) -> None:
    for name in ("b", "a", ".c"):
        files.append(folder / name).close()
    require(files.names(folder) == [".c", "a", "b"], "names must be complete and sorted")
    before = files.state(folder / "a")
    files.rename(folder / "a", folder / "b")
    require(files.names(folder) == [".c", "b"], "a renamed file has one name, and replaces the file that had it")
    after = files.state(folder / "b")
    require(before is not None and after is not None and before.inode == after.inode, "renaming makes no new file")
    files.remove(folder / "b")
    files.remove(folder / "b")
    require(files.state(folder / "b") is None, "a removed file is gone")
    require_raises(
        lambda: files.rename(folder / "b", folder / "d"),
        "renaming a missing file must raise FileNotFoundError",
        FileNotFoundError,
    )


def _check_folders(files: Files, folder: Path) -> None:
    inner = folder / "inner"
    files.make_folder(inner)
    files.make_folder(inner)
    state = files.state(inner)
    require(state is not None and state.kind == "folder", "a folder that was made is a folder")
    require(files.writable(inner), "a folder that was made is writable")
    files.append(inner / "x").close()
    files.sync_folder(inner)
    require_raises(
        lambda: files.remove_folder(inner), "removing a folder that is not empty must raise OSError", OSError
    )
    require_raises(
        lambda: files.make_folder(inner / "x"),
        "making a folder where a file is must raise FileExistsError",
        FileExistsError,
    )
    require_raises(
        lambda: files.names(folder / "absent"),
        "listing a missing folder must raise FileNotFoundError",
        FileNotFoundError,
    )
    require_raises(lambda: files.names(inner / "x"), "listing a file must raise NotADirectoryError", NotADirectoryError)
    require_raises(
        lambda: files.append(folder / "absent" / "x"),
        "writing into a missing folder must raise FileNotFoundError",
        FileNotFoundError,
    )
    files.remove(inner / "x")
    files.remove_folder(inner)
    files.remove_folder(inner)
    require(files.state(inner) is None, "a removed folder is gone")


def _check_locks(files: Files, folder: Path) -> None:
    path = folder / "lock"
    first = files.try_lock(path, "the first")
    require(first is not None, "a lock that nobody holds can be taken")
    require(files.try_lock(path, "the second") is None, "a lock has one holder, also within one process")
    require(files.read(path).decode().strip() == "the first", "a lock file names its owner")
    assert first is not None
    first.release()
    first.release()
    second = files.try_lock(path, "the second")
    require(second is not None, "a lock that was released can be taken")
    require(files.read(path).decode().strip() == "the second", "a lock file names its present owner")
    assert second is not None
    files.remove(path)
    third = files.try_lock(path, "the third")
    require(third is not None, "a lock file that was removed is made again")
    assert third is not None
    second.release()
    require(files.try_lock(path, "the fourth") is None, "releasing the old file's lock leaves the new one's")
    third.release()
