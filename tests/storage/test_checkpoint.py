"""The previous checkpoint or the new one, never a torn one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from batchlab.core.errors import StorageFailed
from batchlab.storage.checkpoint import load_checkpoint, save_checkpoint

HEADER = {"step": 7, "tally": {"loss_sum": 0.1 + 0.2, "curve": [[1, 2.5]]}}


def test_comes_back_as_saved(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert load_checkpoint(path) is None
    save_checkpoint(path, HEADER, b"\n{bytes}\x00" * 100)
    assert load_checkpoint(path) == (HEADER, b"\n{bytes}\x00" * 100)
    first = json.loads(path.read_bytes().split(b"\n", 1)[0])
    assert first["step"] == 7
    assert first["length"] == 900 == len(path.read_bytes().split(b"\n", 1)[1])


def test_truncated_at_every_byte_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_checkpoint(path, HEADER, b"some state\nof a model")
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert load_checkpoint(path) is None, cut


def test_any_flipped_byte_of_the_state_or_its_header_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_checkpoint(path, {"step": 3}, b"state")
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
    save_checkpoint(path, {"step": 1}, b"first")

    def fail(*_: object) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageFailed, match="reports errors"):
        save_checkpoint(path, {"step": 2}, b"second")
    assert load_checkpoint(path) == ({"step": 1}, b"first")
