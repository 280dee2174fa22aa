"""Data files are read in full once per version; what was made from data is made again where it was damaged."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from threading import Timer

import pytest

from batchlab.data.digests import damaged_files, file_digest, made_file, read_digest, remember, told_of_waiting
from batchlab.storage.lock import Lock


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.txt"
    path.write_bytes(bytes(range(256)) * 4096)
    return path


def flip(path: Path, place: int, *, keep_time: bool) -> None:
    """Change one bit; `keep_time`: as a failing disk does it, without a new modification time."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def readings(path: Path, cache: Path) -> int:
    """How often the file is read in full to know its digest."""
    calls: list[str] = []
    file_digest(path, cache, lambda doing, done, total: calls.append(doing) if done == total else None)
    return len(calls)


def test_a_version_is_read_once(tmp_path: Path, data: Path) -> None:
    cache = tmp_path / "cache"
    assert [readings(data, cache) for _ in range(3)] == [1, 0, 0]
    os.utime(data)
    assert [readings(data, cache) for _ in range(2)] == [1, 0]
    copy = tmp_path / "copy"
    shutil.copy2(data, copy)
    os.replace(copy, data)
    assert [readings(data, cache) for _ in range(2)] == [1, 0], "the same content under another inode"


def test_a_flip_is_noticed_by_its_time_or_by_a_sample(tmp_path: Path, data: Path) -> None:
    for keep_time in (False, True):
        before = file_digest(data, tmp_path / "cache")
        flip(data, 12345, keep_time=keep_time)
        assert file_digest(data, tmp_path / "cache").sha256 == read_digest(data).sha256 != before.sha256


def test_a_flip_between_the_samples_is_found_by_reading_all(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    large = cache / "large.bin"
    cache.mkdir()
    large.write_bytes(bytes(16 << 20))
    known = file_digest(large, cache)
    flip(large, (1 << 16) + 1000, keep_time=True)
    assert file_digest(large, cache) == known, "no sample is there; this is what sampling cannot see"
    assert damaged_files(cache) == (1, [large])


def test_a_damaged_memory_is_read_again(tmp_path: Path, data: Path) -> None:
    cache = tmp_path / "cache"
    known = file_digest(data, cache)
    (memory,) = cache.glob(".*.sha256")
    for content in (b"", b"{}", memory.read_bytes().replace(b'"size": 1', b'"size": 2')):
        memory.write_bytes(content)
        assert file_digest(data, cache) == known
    remember(cache / "gone", known, cache)
    assert damaged_files(cache) == (0, [])


def test_a_made_file_is_made_once_and_again_where_it_was_damaged(tmp_path: Path) -> None:
    path, made = tmp_path / "cache" / "text.txt", 0

    def content() -> list[bytes]:
        nonlocal made
        made += 1
        return [b"some ", b"text"]

    assert made_file(path, content) is None
    assert made_file(path, content) is None
    os.utime(path)
    assert made_file(path, content) is None
    assert made == 1
    for number, keep_time in enumerate((False, True), start=1):
        flip(path, 3, keep_time=keep_time)
        aside = made_file(path, content)
        assert aside is not None
        assert aside.read_bytes() == b"somd text"
        assert path.read_bytes() == b"some text"
        assert made == 1 + number
    moved = tmp_path / "moved"
    path.parent.rename(moved)
    made_file(moved / path.name, content)
    assert made == 3
    for memory in moved.glob(".*.sha256"):
        memory.unlink()
    (moved / ".text.txt.0.batchlab-tmp").write_bytes(b"half")
    assert made_file(moved / path.name, content) is None
    assert made == 4, "whether it is whole was not known"
    assert not list(moved.glob(".*.batchlab-tmp"))


def test_whoever_waits_for_a_file_says_for_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other, told = tmp_path / "cache" / "text.txt", Lock(tmp_path / "cache" / ".lock"), list[tuple[Path, str]]()
    path.parent.mkdir()

    def end_waiting(file: Path, owner: str) -> None:
        told.append((file, owner))
        other.release()

    assert other.try_acquire()
    token = told_of_waiting.set(end_waiting)
    try:
        made_file(path, lambda: [b"text"])
    finally:
        told_of_waiting.reset(token)
    assert told == [(path, f"process {os.getpid()} on {socket.gethostname()}")]
    assert path.read_bytes() == b"text"
    assert other.try_acquire()
    Timer(0.2, other.release).start()
    made_file(path.with_name("more.txt"), lambda: [b"more"])
    said = capsys.readouterr().out
    assert str(os.getpid()) in said
    assert "more.txt" in said
    made_file(path.with_name("third.txt"), lambda: [b"third"])
    assert capsys.readouterr().out == "", "nobody had to wait"


def test_made_files_can_be_used_by_a_colleague(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        made_file(tmp_path / "cache" / "text.txt", lambda: [b"text"])
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "cache").iterdir()}
    assert set(modes.values()) == {0o664}, modes
