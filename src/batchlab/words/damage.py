"""Files of a study that are not what was written: what is wrong, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from batchlab.core.format import format_plural
from batchlab.storage.sealed import Damage, DamagedFile

REMEDY = "run the study's command again to repair it and to repeat those runs"

_SHOWN = 20


def describe_damage(damaged: DamagedFile) -> str:
    """The file by its place in the study, and what is wrong with it."""
    wrong = {
        Damage.MISSING: "is missing",
        Damage.NOT_A_FILE: "is not a file",
        Damage.NO_DIGEST: "is torn or was edited (it does not end with its digest)",
        Damage.OTHER_DIGEST: "is damaged (its content does not match its digest)",
        Damage.OTHER_RUN: "belongs to another run",
        Damage.UNREADABLE: "cannot be read (check the permissions of it and its folder, and the disk)",
        Damage.SET_ASIDE: "was set aside because it or another file of its run was damaged",
    }[damaged.damage]
    return f"{_place(damaged)} {wrong}"


def set_aside_line(damaged: DamagedFile) -> str:
    """A run is done again because of a damaged file."""
    aside = "" if damaged.damage is Damage.MISSING else f"; it is kept as {damaged.path.name}.damaged"
    return f"{describe_damage(damaged)}{aside}, and the run is done again"


def repaired_line(damaged: DamagedFile) -> str:
    """A file was replaced by its copy."""
    aside = "" if damaged.damage is Damage.MISSING else f"; it is kept as {damaged.path.name}.damaged"
    return f"{describe_damage(damaged)}{aside}, and its copy has taken its place"


def damage_lines(damaged: Sequence[DamagedFile]) -> list[str]:
    """What a command that only reads says about damaged files."""
    if not damaged:
        return []
    lines = [f"{describe_damage(each)}; {_consequence(each)}" for each in damaged[:_SHOWN]]
    if len(damaged) > _SHOWN:
        lines.append(f"and {format_plural(len(damaged) - _SHOWN, 'more damaged file')}")
    return [*lines, REMEDY]


def left_out(damaged: Sequence[DamagedFile]) -> list[str]:
    """The runs of which nothing is used because a file of theirs is damaged, sorted."""
    return sorted({each.path.parent.name for each in damaged if _consequence(each) == _LEFT_OUT})


def damaged_data_line(path: Path) -> str:
    """A data file, or a file made from data, is not what was read."""
    return f"{path} is not what this study has read: it was changed, damaged or removed"


def verified_line(runs: int, files: int, damaged: int) -> str:
    """What `status --verify` compared with its digests."""
    found = f"{format_plural(damaged, 'file')} damaged" if damaged else "nothing is damaged"
    read = f"{format_plural(runs, 'finished run')} and {format_plural(files, 'data file')}"
    return f"verified in full: the experiment, the decisions, {read}; {found}"


_LEFT_OUT, _COPIED = "the run is left out", "its copy was read"


def _consequence(damaged: DamagedFile) -> str:
    return _COPIED if damaged.path.name in ("experiment.json", "decisions.json") else _LEFT_OUT


def _place(damaged: DamagedFile) -> str:
    run = damaged.path.parent
    return f"runs/{run.name}/{damaged.path.name}" if run.parent.name == "runs" else damaged.path.name
