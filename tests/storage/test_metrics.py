"""metrics.jsonl survives a writer killed at any byte."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.core.errors import StorageFailed
from batchlab.core.record import MetricRow
from batchlab.storage.metrics import MetricsWriter, read_rows, rewind

ROWS = [
    MetricRow(step=1, tokens=32, train_loss=0.1 + 0.2, learning_rate=1e-5, grad_norm=math.inf),
    MetricRow(step=2, tokens=64, val_loss=2.5),
    MetricRow(step=2, tokens=64, train_loss=1 / 3, in_use_bytes=2**40),
    MetricRow(step=3, tokens=96, train_loss=5e-324),
]


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Thousands of files are rewritten here; none has to survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def write(path: Path, rows: list[MetricRow]) -> None:
    writer = MetricsWriter(path)
    for row in rows:
        writer.write(row)
    writer.close()


def test_rows_come_back_to_the_bit_and_nan_too(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, [*ROWS, MetricRow(step=4, tokens=128, train_loss=math.nan)])
    rows, unreadable = read_rows(path)
    assert rows[:-1] == ROWS
    assert rows[-1].train_loss is not None
    assert math.isnan(rows[-1].train_loss)
    assert unreadable == 0


def test_file_truncated_at_every_byte_is_read_repaired_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, ROWS)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = whole[:cut].split(b"\n")
        complete = sum(1 for i, line in enumerate(lines) if cut >= len(b"".join(lines[: i + 1])) - 1)
        torn = 1 if kept[-1] and complete == len(kept) - 1 else 0

        rows, unreadable = read_rows(path)
        assert (rows, unreadable) == (ROWS[:complete], torn), cut

        write(path, [ROWS[3]])  # a writer that goes on without repairing spoils nothing
        rows, unreadable = read_rows(path)
        assert (rows, unreadable) == ([*ROWS[:complete], ROWS[3]], torn), cut

        assert rewind(path, step=2) == torn, cut
        rows, unreadable = read_rows(path)
        assert (rows, unreadable) == ([row for row in ROWS[:complete] if row.step <= 2], 0), cut
        assert path.read_bytes() in (b"", b"".join(lines[: len(rows)])), cut


@given(garbage=st.binary(max_size=200), cut=st.integers(0, 400))
@settings(max_examples=200, deadline=None)
def test_garbage_after_any_cut_never_loses_what_was_whole_before_it(garbage: bytes, cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        write(path, ROWS)
        whole = path.read_bytes()[:cut]
        path.write_bytes(whole + garbage)
        before = [ROWS[i] for i in range(whole.count(b"\n"))]
        writer = MetricsWriter(path)
        writer.write(ROWS[3])
        writer.close()
        rows, unreadable = read_rows(path)
        assert rows[: len(before)] == before
        assert rows[-1] == ROWS[3]
        assert rewind(path, step=10**9) == unreadable
        assert read_rows(path) == (rows, 0)
        assert rewind(path, step=10**9) == 0


def test_rewind_drops_later_rows_and_counts_only_unreadable_ones(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, ROWS)
    assert rewind(path, step=1) == 0
    assert read_rows(path) == (ROWS[:1], 0)
    assert rewind(path, step=0) == 0
    assert path.read_bytes() == b""


def test_rewind_leaves_a_file_alone_that_has_nothing_to_drop(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, ROWS)
    before = path.stat().st_ino
    rewind(path, step=3)
    assert path.stat().st_ino == before
    assert rewind(tmp_path / "absent.jsonl", step=3) == 0
    assert not (tmp_path / "absent.jsonl").exists()


def test_a_row_cut_short_by_a_full_disk_is_fenced_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path)
    writer.write(ROWS[0])
    real, calls = os.write, []

    def half_then_full(descriptor: int, content: bytes) -> int:
        calls.append(content)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, content[: len(content) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half_then_full)
        with pytest.raises(StorageFailed, match="is full; finished runs are kept"):
            writer.write(ROWS[1])
    writer.write(ROWS[3])
    writer.close()
    assert read_rows(path) == ([ROWS[0], ROWS[3]], 1)
