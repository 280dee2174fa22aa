"""Either the old file or the new one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchlab.core.errors import StorageFailed
from batchlab.storage.atomic import (
    is_temporary,
    make_folders,
    remove_temporaries,
    remove_tree,
    storage_errors,
    write_atomically,
)


def test_replaces_text_bytes_and_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "zwölf\n")
    assert path.read_bytes() == "zwölf\n".encode()
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    write_atomically(path, (b"one", b"two"))
    assert path.read_bytes() == b"onetwo"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        write_atomically(path, pieces())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "is full"), (errno.EDQUOT, "quota"), (errno.EROFS, "is read-only")]
)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_takes_no_more_is_said_to_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, call: str
) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageFailed, match=words) as caught:
        write_atomically(path, "new")
    assert "run the same command again" in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOENT, "cannot be used"), (errno.EACCES, "umask"), (errno.ELOOP, "link"), (errno.EMFILE, "ulimit")],
)
def test_every_other_error_is_a_sentence_too(tmp_path: Path, number: int, words: str) -> None:
    with pytest.raises(StorageFailed, match=words), storage_errors(tmp_path / "a.txt"):
        raise OSError(number, os.strerror(number))


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match=r"absent.*cannot be used"):
        write_atomically(tmp_path / "absent" / "a.txt", "x")


def test_leftovers_of_killed_writers_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "kept")
    (tmp_path / ".own").write_text("a person's hidden file")
    seen: list[str] = []

    def pieces() -> Iterator[bytes]:
        seen.extend(entry.name for entry in tmp_path.iterdir() if is_temporary(entry.name))
        yield b"kept"

    write_atomically(path, pieces())
    (name,) = seen
    (tmp_path / name).write_text("as a killed writer leaves it")
    write_atomically(path, "new")
    assert (tmp_path / name).exists(), "another writer may be writing it"
    remove_temporaries(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.txt", ".own"}
    assert path.read_text() == "new"


def test_folders_are_made_and_removed_with_what_is_in_them(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    make_folders(outside)
    (outside / "kept").write_text("x")
    make_folders(tmp_path / "a" / "b")
    make_folders(tmp_path / "a" / "b")
    (tmp_path / "a" / "file").write_text("x")
    (tmp_path / "a" / "b" / "link").symlink_to(outside)
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "a" / "file")
    remove_tree(tmp_path / "a")
    remove_tree(tmp_path / "a")
    assert [entry.name for entry in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").exists()
