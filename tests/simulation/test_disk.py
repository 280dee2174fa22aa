"""The disk in memory keeps the contract of `Files`, and loses in a power cut what was not synced."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.simulation.disk import MemoryDisk

from batchlab.testing import check_files

FOLDER = Path("/d")
SEEDS = range(60)


def disk() -> MemoryDisk:
    made = MemoryDisk()
    made.make_folder(FOLDER)
    made.sync_folder(FOLDER.parent)
    return made


def test_the_contract() -> None:
    check_files(disk(), FOLDER)


def test_what_was_synced_survives_every_power_cut() -> None:
    for seed in SEEDS:
        each = disk()
        file = each.create(FOLDER / "a")
        file.write(b"synced")
        file.sync()
        each.rename(FOLDER / "a", FOLDER / "b")
        each.sync_folder(FOLDER)
        file.write(b" and not")
        each.cut_power(Random(seed))
        assert each.names(FOLDER) == ["b"]
        assert each.read(FOLDER / "b").startswith(b"synced")


def test_what_was_not_synced_may_be_lost_in_part() -> None:
    names, contents = set(), set()
    for seed in SEEDS:
        each = disk()
        each.create(FOLDER / "old").sync()
        each.sync_folder(FOLDER)
        new = each.create(FOLDER / "new")
        new.write(b"content")
        each.rename(FOLDER / "new", FOLDER / "old")
        each.append(FOLDER / "other").close()
        each.cut_power(Random(seed))
        names.add(tuple(each.names(FOLDER)))
        contents.add(each.read(FOLDER / "old"))
    assert ("old",) in names  # the new file without its rename, or the rename alone
    assert ("old", "other") in names
    assert ("new", "old") in names
    assert {b"", b"content"} <= contents
    assert any(0 < len(content) < 7 for content in contents)
    assert any(content.startswith(b"\0") for content in contents)  # a later block reached the disk, this one did not


def test_a_power_cut_frees_all_locks() -> None:
    each = disk()
    assert each.try_lock(FOLDER / "lock", "me") is not None
    each.sync_folder(FOLDER)
    each.cut_power(Random(0))
    assert each.held_locks() == []
    assert each.try_lock(FOLDER / "lock", "me") is not None


def test_the_end_of_a_process_frees_its_locks_only() -> None:
    each = disk()
    each.owner_process = "one"
    each.try_lock(FOLDER / "a", "")
    each.owner_process = "two"
    each.try_lock(FOLDER / "b", "")
    each.end_process("one")
    assert each.held_locks() == [FOLDER / "b"]


def test_a_flip_changes_one_bit_for_good() -> None:
    each = disk()
    file = each.create(FOLDER / "a")
    file.write(b"\0\0")
    file.sync()
    each.sync_folder(FOLDER)
    each.flip(FOLDER / "a", 9)
    assert each.read(FOLDER / "a") == b"\0\2"
    each.cut_power(Random(0))
    assert each.read(FOLDER / "a") == b"\0\2"
