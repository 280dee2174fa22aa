"""The disk keeps the contract of `Files`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchlab.storage.files import DISK
from batchlab.testing import check_files


def test_the_contract(tmp_path: Path) -> None:
    check_files(DISK, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    link = tmp_path / "link"
    link.symlink_to(target)
    for write in (DISK.append, DISK.create, lambda path: DISK.try_lock(path, "me")):
        with pytest.raises(OSError, match=r"link"):
            write(link)
    folder = tmp_path / "folder"
    folder.symlink_to(tmp_path)
    with pytest.raises(FileExistsError):
        DISK.make_folder(folder)
    assert target.read_text() == "theirs"
    state = DISK.state(link)
    assert state is not None
    assert state.kind == "link"


def test_new_files_and_folders_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        DISK.append(tmp_path / "file").close()
        DISK.make_folder(tmp_path / "folder")
        lock = DISK.try_lock(tmp_path / "lock", "me")
        assert lock is not None
        lock.release()
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("file", "lock", "folder")}
    assert modes == {"file": 0o664, "lock": 0o664, "folder": 0o775}


KILLED = """
import os, signal
from batchlab.storage.files import DISK
folder = DISK.make_temporary_folder()
(folder / "runs").mkdir()
(folder / "runs" / "log.txt").write_text("inspected")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    theirs = tmp_path / f"{left.name}-by-hand"
    theirs.mkdir(mode=0o755)
    first = DISK.make_temporary_folder()
    second = DISK.make_temporary_folder()
    assert not left.exists()
    assert set(tmp_path.iterdir()) == {first, second, theirs}, "what is in use stays, and so does what is not ours"
    for folder in (first, second):
        DISK.remove_folder(folder)
    assert list(tmp_path.iterdir()) == [theirs]
