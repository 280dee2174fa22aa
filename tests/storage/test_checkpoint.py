"""The previous checkpoint or the new one, never a torn one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchlab.core.errors import StorageFailed
from batchlab.core.protocols import ByteSink
from batchlab.storage.checkpoint import load_checkpoint, save_checkpoint

HEADER = {"step": 7, "tally": {"loss_sum": 0.1 + 0.2, "curve": [[1, 2.5]]}}


def test_comes_back_as_saved(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert load_checkpoint(path) is None
    save_checkpoint(path, HEADER, lambda sink: sink.write(b"\n{bytes}\x00" * 100))
    assert load_checkpoint(path) == (HEADER, b"\n{bytes}\x00" * 100)
    assert path.read_bytes().startswith(b"\n{bytes}\x00" * 100)


def test_the_state_goes_straight_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state"

    def write(sink: ByteSink) -> None:
        for number in range(3):
            assert sink.write(bytes([number]) * 1000) == 1000
            [temporary] = [file for file in tmp_path.iterdir() if file != path]
            assert temporary.stat().st_size == 1000 * (number + 1)

    save_checkpoint(path, HEADER, write)
    assert load_checkpoint(path) == (HEADER, b"".join(bytes([number]) * 1000 for number in range(3)))


def test_truncated_at_every_byte_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_checkpoint(path, HEADER, lambda sink: sink.write(b"some state\nof a model"))
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert load_checkpoint(path) is None, cut


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
        found = load_checkpoint(path)
        assert found is None or found == ({"step": 3}, b"state"), place


def test_a_failed_save_keeps_the_previous_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    save_checkpoint(path, {"step": 1}, lambda sink: sink.write(b"first"))

    def fail(*_: object) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageFailed, match="reports errors"):
        save_checkpoint(path, {"step": 2}, lambda sink: sink.write(b"second"))
    assert load_checkpoint(path) == ({"step": 1}, b"first")
