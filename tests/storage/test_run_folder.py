"""One run's folder: lock, metrics and checkpoint in step, the record last."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from batchlab.core.errors import InputError
from batchlab.core.record import MetricRow, Outcome, Record
from batchlab.core.spec import TrainSpec
from batchlab.storage.files import DISK, DiskFiles
from batchlab.storage.run_folder import KnownRuns, RunFolder, read_run, read_spec
from batchlab.storage.sealed import Damage, DamagedFile, seal, unseal


@pytest.fixture
def folder(tmp_path: Path, train_spec: Callable[..., TrainSpec]) -> RunFolder:
    run = RunFolder(tmp_path, train_spec())
    assert run.try_lock()
    return run.begin()


def rows(*steps: int) -> list[MetricRow]:
    return [MetricRow(step=step, tokens=32 * step, train_loss=1.0 / step) for step in steps]


def test_resuming_rewinds_the_metrics_to_the_checkpoint(folder: RunFolder) -> None:
    for row in rows(1, 2):
        folder.row(row)
    folder.save_checkpoint({"step": 2}, lambda sink: sink.write(b"state"))
    for row in rows(3, 4):
        folder.row(row)
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "tok')
    saved = folder.load_checkpoint()
    assert saved is not None
    assert (saved[0], saved[1].read()) == ({"step": 2}, b"state")
    assert folder.repaired_lines == 1
    folder.row(rows(3)[0])
    folder.close()
    from batchlab.storage.metrics import read_rows

    assert read_rows(folder.path / "metrics.jsonl") == (rows(1, 2, 3), 0)


def test_without_a_checkpoint_no_metrics_are_left(folder: RunFolder) -> None:
    folder.row(rows(1)[0])
    assert folder.load_checkpoint() is None
    assert not (folder.path / "metrics.jsonl").exists()
    assert folder.repaired_lines == 0


def test_finishing_writes_the_record_and_drops_the_checkpoint(folder: RunFolder) -> None:
    assert folder.record() is None
    folder.save_checkpoint({"step": 2}, lambda sink: sink.write(b"state"))
    record = Record(run_id=folder.run_id, outcome=Outcome.COMPLETED)
    folder.finish(record)
    assert folder.record() == record
    assert read_spec(folder.path) == folder.spec
    assert not (folder.path / "checkpoint").exists()


def test_leftovers_of_a_killed_writer_are_removed_by_the_next(folder: RunFolder) -> None:
    leftover = folder.path / ".record.json.0a0b.batchlab-tmp"
    leftover.write_text("half")
    (folder.path / "checkpoint").mkdir()
    torn = folder.path / "checkpoint" / ".state.0a0b.batchlab-tmp"
    torn.write_text("half")
    folder.begin()
    folder.load_checkpoint()
    assert not leftover.exists()
    assert not torn.exists()


def test_one_process_at_a_time(folder: RunFolder) -> None:
    other = RunFolder(folder.path.parents[1], folder.spec)
    assert not other.try_lock()
    assert other.locked_by_another()
    folder.unlock()
    assert not other.locked_by_another()
    assert other.try_lock()
    other.unlock()
    other.unlock()


HOLDER = """
import os, sys, time
from pathlib import Path
from batchlab.storage.files import DISK, DiskFiles
from batchlab.storage.run_folder import RunFolder
from batchlab.core.spec import SPEC
run = RunFolder(Path(sys.argv[1]), SPEC.validate_json(sys.argv[2]))
assert run.try_lock()
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print("held", flush=True)
time.sleep(60)
"""


def test_a_killed_holder_frees_the_run_even_when_its_forked_child_lives_on(
    tmp_path: Path, train_spec: Callable[..., TrainSpec]
) -> None:
    spec = train_spec()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), spec.model_dump_json()],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        run = RunFolder(tmp_path, spec)
        assert not run.try_lock()
        holder.kill()
        holder.wait()
        deadline = time.monotonic() + 30
        while not run.try_lock():
            assert time.monotonic() < deadline, "the lock outlived its holder"
            time.sleep(0.05)
        run.unlock()
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        assert holder.stdout is not None
        holder.stdout.close()


def test_log_tail_is_the_end_in_one_line(folder: RunFolder) -> None:
    assert folder.log_tail() == ""
    folder.log("first")
    folder.log("x" * 1000)
    folder.log("  last line \n\n")
    tail = folder.log_tail(50)
    assert tail.endswith("x | last line")
    assert len(tail) == 50


@pytest.fixture
def finished(folder: RunFolder) -> RunFolder:
    folder.row(rows(1)[0])
    folder.finish(Record(run_id=folder.run_id, outcome=Outcome.COMPLETED))
    return folder


def test_any_flipped_bit_is_found(finished: RunFolder) -> None:
    for name in ("record.json", "spec.json", "metrics.jsonl"):
        path = finished.path / name
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
            damaged = read_run(finished.path, metrics=True)
            assert isinstance(damaged, DamagedFile), (name, place)
            assert damaged.path.name in (name, "record.json")
        path.write_bytes(whole)
    assert isinstance(read_run(finished.path, metrics=True), tuple)


def test_a_damaged_run_is_set_aside_when_it_begins_again(finished: RunFolder) -> None:
    record = finished.path / "record.json"
    whole = record.read_bytes()
    for number, content in enumerate(
        (b"", b"null", b"[" * 100_000, whole[:-1], whole.replace(b"completed", b"diverged"))
    ):
        record.write_bytes(content)
        assert finished.record() is None
        finished.begin()
        assert not record.exists()
        aside = finished.path / ("record.json.damaged" + (f"-{number + 1}" if number else ""))
        assert aside.read_bytes() == content
        finished.finish(Record(run_id=finished.run_id, outcome=Outcome.COMPLETED))
        assert finished.record() is not None
    record.unlink()
    record.mkdir()
    assert read_run(finished.path) == DamagedFile(record, Damage.NOT_A_FILE)
    finished.begin()
    assert not record.exists()


def test_a_record_of_another_run_is_not_this_ones(finished: RunFolder, train_spec: Callable[..., TrainSpec]) -> None:
    other = RunFolder(finished.path.parents[1], train_spec(seed=1))
    assert other.try_lock()
    other.begin().finish(Record(run_id=other.run_id, outcome=Outcome.DIVERGED))
    for name in ("spec.json", "record.json"):
        shutil.copy(other.path / name, finished.path)
    assert read_run(finished.path) == DamagedFile(finished.path / "record.json", Damage.OTHER_RUN)
    (finished.path / "spec.json").unlink()
    assert read_run(finished.path) == DamagedFile(finished.path / "spec.json", Damage.MISSING)
    assert read_spec(finished.path) is None


def test_a_whole_run_that_another_version_identified_is_not_damaged(
    finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchlab.storage.run_folder.run_id", lambda spec: "train-of-another-version")
    with pytest.raises(InputError, match="another version"):
        read_run(finished.path)


def test_known_runs_are_read_again_only_where_they_changed(
    finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, read, original = KnownRuns(DISK), list[str](), DISK.read

    def noted(files: DiskFiles, path: Path, start: int = 0, size: int | None = None) -> bytes:
        read.append(path.name)
        return original(path, start, size)

    monkeypatch.setattr(DiskFiles, "read", noted)
    first = look(finished.path)
    assert isinstance(first, tuple)
    assert sorted(read) == ["record.json", "spec.json"]
    assert look(finished.path) is first
    assert len(read) == 2
    for name in ("record.json", "spec.json"):
        os.utime(finished.path / name, (1.0, 1.0))
        assert look(finished.path) == first
    assert len(read) == 6
    (finished.path / "record.json").write_bytes(b"{}")
    assert look(finished.path) == DamagedFile(finished.path / "record.json", Damage.NO_DIGEST)
    (finished.path / "record.json").unlink()
    assert look(finished.path) is None


def test_a_record_of_another_version_stops_with_a_sentence(finished: RunFolder) -> None:
    record = finished.path / "record.json"
    text = record.read_text().replace('"schema_version": 1', '"schema_version": 2')
    sealed = unseal(record.read_bytes())
    content = sealed.content.replace(b'"schema_version": 1', b'"schema_version": 2').decode()
    assert content in text.partition(',\n "spec_sha256"')[0] + "\n}"
    record.write_bytes(seal(content, sealed.others))
    with pytest.raises(InputError, match="another version"):
        finished.record()
