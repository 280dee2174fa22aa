"""SIGTERM, Ctrl-C, a full disk, two processes at once: nothing finished is lost, and the text says what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.injections import injection

from batchlab.storage.store import Store

pytestmark = pytest.mark.slow

Start = Callable[[Path], "subprocess.Popen[str]"]
Finish = Callable[["subprocess.Popen[str]"], str]
WorkersOf = Callable[[Path], list[psutil.Process]]
Record = Callable[[str, Any], None]


def wait_for_training(process: subprocess.Popen[str], folder: Path, finished: int = 2) -> None:
    """Until some training runs are finished and another has begun."""
    deadline = time.monotonic() + 300
    while len(list(folder.glob("runs/train-*/record.json"))) < finished:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_stopped_it_says_how_to_go_on_and_goes_on(
    tmp_path: Path,
    start: Start,
    finish: Finish,
    undisturbed: bytes,
    workers_of: WorkersOf,
    number: signal.Signals,
    record_property: Record,
) -> None:
    record_property("injection", injection(f"real processes: {number.name} to the study", 1, refused=1))
    folder = tmp_path / "study"
    process = start(folder)
    wait_for_training(process, folder)
    process.send_signal(number)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "run the same command again" in said
    assert "Traceback" not in said
    assert workers_of(folder) == []
    kept = {path: path.read_bytes() for path in folder.glob("runs/*/record.json")}
    assert len(kept) >= 2
    assert (folder / "report.html").exists()

    finish(start(folder))
    assert (folder / "outcomes.csv").read_bytes() == undisturbed
    assert {path: path.read_bytes() for path in kept} == kept


def test_two_processes_share_one_study(
    tmp_path: Path, start: Start, finish: Finish, undisturbed: bytes, record_property: Record
) -> None:
    record_property("injection", injection("real processes: two on one study", 1))
    folder = tmp_path / "study"
    one = start(folder)
    while not Store.exists(folder):
        assert one.poll() is None, one.communicate()[0]
        time.sleep(0.02)
    two = start(folder)
    finish(one)
    finish(two)
    assert (folder / "outcomes.csv").read_bytes() == undisturbed
    records = Store.open(folder).records()
    assert {record.attempts for _, record in records} == {1}
    assert all(getattr(record.result, "resumed", 0) == 0 for _, record in records)
    runs = [line.split(",")[1] for line in (folder / "results.csv").read_text().splitlines()[1:]]
    assert len(runs) == len(set(runs))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """A file system of its own, and a way to resize it. Needs the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if os.name != "posix" or mount is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root; the unit tests make single writes fail instead")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"mounting a small file system is not permitted here: {made.stderr.strip()}")

    def resize(size: str) -> None:
        subprocess.run([mount, "-o", f"remount,size={size}", str(place)], check=True)

    yield place, resize
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_loses_nothing_finished(
    small_disk: tuple[Path, Callable[[str], None]],
    start: Start,
    finish: Finish,
    undisturbed: bytes,
    workers_of: WorkersOf,
    record_property: Record,
) -> None:
    record_property("injection", injection("real processes: a disk that is full", 1, refused=1))
    disk, resize = small_disk
    folder = disk / "study"
    process = start(folder)
    wait_for_training(process, folder)
    used = shutil.disk_usage(disk).used
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert "is full; finished runs are kept" in said
    assert "run the same command again" in said
    assert "Traceback" not in said
    assert workers_of(folder) == []
    kept = {path: path.read_bytes() for path in folder.glob("runs/*/record.json")}
    assert len(kept) >= 2

    ballast.unlink()
    resize(f"{used + 64 * 2**20}")
    finish(start(folder))
    assert (folder / "outcomes.csv").read_bytes() == undisturbed
    assert {path: path.read_bytes() for path in kept} == kept
