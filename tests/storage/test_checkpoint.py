"""The previous checkpoint or the new one, never a torn one."""

from __future__ import annotations

import errno
import io
import os
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from batchlab.core.errors import StorageFailed
from batchlab.core.protocols import ByteSink
from batchlab.storage.checkpoint import load_checkpoint, save_checkpoint
from batchlab.storage.files import DiskFile, DiskFiles

HEADER = {"step": 7, "tally": {"loss_sum": 0.1 + 0.2, "curve": [[1, 2.5]]}}


def loaded(path: Path) -> tuple[dict[str, Any], bytes] | None:
    found = load_checkpoint(path)
    return None if found is None else (found[0], found[1].read())


def test_comes_back_as_saved(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert loaded(path) is None
    save_checkpoint(path, HEADER, lambda sink: sink.write(b"\n{bytes}\x00" * 100))
    assert loaded(path) == (HEADER, b"\n{bytes}\x00" * 100)
    assert path.read_bytes().startswith(b"\n{bytes}\x00" * 100)


def test_the_state_goes_straight_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state"

    def write(sink: ByteSink) -> None:
        for number in range(3):
            assert sink.write(bytes([number]) * 1000) == 1000
            [temporary] = [file for file in tmp_path.iterdir() if file != path]
            assert temporary.stat().st_size == 1000 * (number + 1)

    save_checkpoint(path, HEADER, write)
    assert loaded(path) == (HEADER, b"".join(bytes([number]) * 1000 for number in range(3)))


def test_a_state_is_read_piece_by_piece(tmp_path: Path) -> None:
    path, pieces = tmp_path / "state", [bytes([number]) * 2**20 for number in range(16)]
    save_checkpoint(path, HEADER, lambda sink: [sink.write(piece) for piece in pieces])
    into = bytearray(3 * 2**20)
    tracemalloc.start()
    try:
        found = load_checkpoint(path)
        assert found is not None
        _, state = found
        for at in range(5):
            assert state.readinto(into) == len(into)  # type: ignore[attr-defined]
            assert into == b"".join(pieces[3 * at : 3 * at + 3])
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20, "three pieces to compare with, and not all sixteen"
    finally:
        tracemalloc.stop()
    assert state.read() == pieces[15]
    assert state.seek(-1, os.SEEK_END) == 2**24 - 1
    assert state.read() == b"\x0f", "what describes the state is not part of it"


def test_truncated_at_every_byte_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_checkpoint(path, HEADER, lambda sink: sink.write(b"some state\nof a model"))
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert loaded(path) is None, cut


def test_any_flipped_byte_of_the_state_or_its_header_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_checkpoint(path, {"step": 3}, lambda sink: sink.write(b"state"))
    whole = bytearray(path.read_bytes())
    for place in range(len(whole)):
        if b'"step": 3' in bytes(whole[place : place + 10]) or whole[place : place + 1] in b" ":
            continue
        broken = bytearray(whole)
        broken[place] ^= 1
        path.write_bytes(bytes(broken))
        found = loaded(path)
        assert found is None or found == ({"step": 3}, b"state"), place


def test_a_full_disk_is_named_where_the_writer_of_the_state_raises_another_error(tmp_path: Path) -> None:
    path, full = tmp_path / "state", False

    class Full(DiskFile):
        def write(self, content: bytes) -> None:
            if full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(content)

    class SmallDisk(DiskFiles):
        def create(self, path: Path) -> DiskFile:
            return Full(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    disk, state = SmallDisk(), {"weights": torch.zeros(1000)}
    save_checkpoint(path, {"step": 1}, lambda sink: torch.save(state, cast("io.BytesIO", sink)), disk)
    whole, full = path.read_bytes(), True
    with pytest.raises(StorageFailed, match="is full"):
        save_checkpoint(path, {"step": 2}, lambda sink: torch.save(state, cast("io.BytesIO", sink)), disk)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [whole]
    full = False
    with pytest.raises(ValueError, match="of its own"):
        save_checkpoint(path, {"step": 2}, broken, disk)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [whole]


def broken(sink: ByteSink) -> None:
    raise ValueError("an error of its own")


def test_a_failed_save_keeps_the_previous_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    save_checkpoint(path, {"step": 1}, lambda sink: sink.write(b"first"))

    def fail(*_: object) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageFailed, match="reports errors"):
        save_checkpoint(path, {"step": 2}, lambda sink: sink.write(b"second"))
    assert loaded(path) == ({"step": 1}, b"first")
