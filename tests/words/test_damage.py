"""What is said of damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.storage.sealed import Damage, DamagedFile
from batchlab.words.damage import damage_lines, describe_damage, repaired_line, set_aside_line, verified_line

RUN = Path("/study/runs/train-b4")


@pytest.mark.parametrize("damage", list(Damage))
def test_each_kind_has_words(damage: Damage) -> None:
    text = describe_damage(DamagedFile(RUN / "record.json", damage))
    assert text.startswith("runs/train-b4/record.json ")
    assert damage.value not in text or damage is Damage.MISSING


def test_what_becomes_of_it() -> None:
    record, decisions = DamagedFile(RUN / "record.json", Damage.NO_DIGEST), Path("/study/decisions.json")
    assert set_aside_line(record).endswith("it is kept as record.json.damaged, and the run is done again")
    assert "kept as" not in set_aside_line(DamagedFile(RUN / "spec.json", Damage.MISSING))
    assert repaired_line(DamagedFile(decisions, Damage.OTHER_DIGEST)).startswith("decisions.json is damaged")
    lines = damage_lines(
        [record, DamagedFile(decisions, Damage.MISSING), DamagedFile(RUN / "metrics.jsonl", Damage.MISSING)]
    )
    assert [line.rpartition("; ")[2] for line in lines[:3]] == [
        "the run is left out",
        "its copy was read",
        "the run is left out",
    ]
    assert "again" in lines[3]
    assert damage_lines([]) == []
    assert len(damage_lines([record] * 100)) == 22


def test_what_was_verified() -> None:
    assert verified_line(2, 1, 0).endswith("2 finished runs and 1 data file; nothing is damaged")
    assert verified_line(2, 1, 3).endswith("3 files damaged")
