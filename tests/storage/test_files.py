"""The disk keeps the contract of `Files`."""

from __future__ import annotations

import os
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
