"""Token files: complete or absent, resumed after a kill, rejected when damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from batchlab.data import token_file
from batchlab.data.token_file import (
    DamagedTokenFile,
    Origin,
    describe_token_file,
    description_path,
    is_token_file,
    open_token_file,
    write_token_file,
)
from batchlab.data.tokens import TokenDataset

ORIGIN = Origin(
    dtype="uint16",
    vocabulary=300,
    tokenizer="toy",
    tokenizer_file=None,
    tokenizer_digest="d",
    text="t.txt",
    text_bytes=1000,
    text_digest="e",
)
IDS = (np.arange(1000) * 7 % 300).astype(np.uint16)


def encoded(offset: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """One byte of text per id, in chunks of ten."""
    for start in range(offset, 1000, 10):
        yield start + 10, IDS[start : start + 10]


def test_ids_and_their_description(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    described, resumed = write_token_file(path, ORIGIN, encoded)
    assert (described.tokens, described.vocabulary, resumed) == (1000, 300, 0)
    span = open_token_file(path)
    assert isinstance(span.ids, np.memmap)
    assert np.array_equal(span.ids, IDS)
    assert np.array_equal(np.fromfile(path, "<u2"), IDS)  # any program can read it
    assert span.digest == TokenDataset(IDS, 4).digest  # equals the digest computed from the ids
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.bin", "c.bin.json"]


def test_a_part_has_its_own_digest(tmp_path: Path) -> None:
    write_token_file(tmp_path / "c.bin", ORIGIN, encoded)
    span = open_token_file(tmp_path / "c.bin")
    parts = [span.part(0, 900), span.part(900, 1000), span.part(0, 900)]
    assert parts[0].digest == parts[2].digest != parts[1].digest
    assert np.array_equal(TokenDataset(parts[1], 9).tokens, IDS[900:])


def stopped_at(stop: int, started: list[int]) -> Any:
    def until(offset: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        started.append(offset)
        for end, ids in encoded(offset):
            if end > stop:
                raise KeyboardInterrupt
            yield end, ids

    return until


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_file, "SAVE_BYTES", 100)


def test_an_interrupted_write_is_resumed(tmp_path: Path, often: None) -> None:
    path = tmp_path / "c.bin"
    started: list[int] = []
    for stop in (330, 330, 770):
        with pytest.raises(KeyboardInterrupt):
            write_token_file(path, ORIGIN, stopped_at(stop, started))
        assert not path.exists()
    described, resumed = write_token_file(path, ORIGIN, encoded)
    assert started == [0, 300, 300]
    assert resumed == 700
    assert np.array_equal(open_token_file(path).ids, IDS)
    assert described.digest == TokenDataset(IDS, 4).digest


@pytest.mark.parametrize("harm", ["another origin", "changed", "shorter", "torn state"])
def test_a_partial_file_that_does_not_match_is_restarted(tmp_path: Path, often: None, harm: str) -> None:
    path = tmp_path / "c.bin"
    with pytest.raises(KeyboardInterrupt):
        write_token_file(path, ORIGIN, stopped_at(500, []))
    partial, state = tmp_path / ".c.bin.partial", tmp_path / ".c.bin.partial.json"
    origin = ORIGIN
    match harm:
        case "another origin":
            origin = ORIGIN.model_copy(update={"text_digest": "f"})
        case "changed":
            content = bytearray(partial.read_bytes())
            content[17] ^= 1
            partial.write_bytes(content)
        case "shorter":
            partial.write_bytes(partial.read_bytes()[:501])
        case "torn state":
            state.write_bytes(state.read_bytes()[:-9])
    _, resumed = write_token_file(path, origin, encoded)
    assert resumed == 0
    assert np.array_equal(open_token_file(path).ids, IDS)


def test_damage_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    described, _ = write_token_file(path, ORIGIN, encoded)
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    with pytest.raises(DamagedTokenFile, match="has 1,998 bytes instead of 2,000"):
        open_token_file(path)
    path.write_bytes(whole[:-2] + b"\xff\xff")
    os.utime(path, ns=(1, 1))
    with pytest.raises(DamagedTokenFile, match="does not match its digest"):
        open_token_file(path)
    os.utime(path, ns=(1, described.mtime_ns))
    with pytest.raises(DamagedTokenFile, match="does not match its digest"):
        open_token_file(path)  # as on a failing disk: a sample shows it
    path.write_bytes(whole)  # a copy: another modification time, the same ids
    assert len(open_token_file(path)) == 1000
    description_path(path).write_text("{")
    with pytest.raises(DamagedTokenFile, match=r"describes the ids in c\.bin, is damaged"):
        describe_token_file(path)


def test_an_older_file_never_gets_a_newer_description(tmp_path: Path, often: None) -> None:
    path = tmp_path / "c.bin"
    write_token_file(path, ORIGIN, encoded)
    other = ORIGIN.model_copy(update={"text_digest": "f"})
    with pytest.raises(KeyboardInterrupt):
        write_token_file(path, other, stopped_at(500, []))
    assert describe_token_file(path).text_digest == "e"
    assert len(open_token_file(path)) == 1000
    write_token_file(path, other, encoded)
    assert describe_token_file(path).text_digest == "f"


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_token_file as t
t.token_file.SAVE_BYTES = 100
def encoded(offset):
    for end, ids in t.encoded(offset):
        yield end, ids
        if end == 640:
            os.kill(os.getpid(), signal.SIGKILL)
t.write_token_file(Path(sys.argv[1]), t.ORIGIN, encoded)
"""


@pytest.mark.slow
def test_a_file_half_written_when_killed_is_never_used(tmp_path: Path, often: None) -> None:
    path = tmp_path / "c.bin"
    arguments = [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)]
    killed = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not path.exists()
    assert not is_token_file(path)
    described, resumed = write_token_file(path, ORIGIN, encoded)
    assert resumed == 600
    assert described.digest == TokenDataset(IDS, 4).digest


TWO = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_token_file as t
def encoded(offset):
    for end, ids in t.encoded(offset):
        time.sleep(0.003)
        yield end, ids
described, resumed = t.write_token_file(Path(sys.argv[1]), t.ORIGIN, encoded)
print(resumed, described.digest)
"""


@pytest.mark.slow
def test_two_writers_make_one_file(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    arguments = [sys.executable, "-c", TWO, str(path), str(Path(__file__).parent)]
    both = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].split() for process in both)
    assert [digest for _, digest in said] == [TokenDataset(IDS, 4).digest] * 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.bin", "c.bin.json"]
