"""Is what a study tells people to train with as good as the study says?

    python benchmarks/end_to_end_truth/run.py FOLDER [--each N] [--families a,b] [--final] [--write]

Runs N simulated studies of every family (families.py) through `run_study`, half with a grid and half adaptive, with
default settings, in this process, and compares each answer with the truth, which is computed (truth.py). Every study
has a truth of its own. A line per study is kept in FOLDER/studies.jsonl, so that a killed run goes on.

Without --final the seeds are those of development: 0, 1, 2, … With it they come from a number that is drawn by the
operating system when the folder is begun, which takes a committed working tree; they are disjoint from the others.
Nothing may be tuned on them. `--write` writes results.md and results.json beside this file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import secrets
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from families import FAMILIES
from judge import judge
from table import aggregates, pages

EACH = 200
FINAL_FROM = 2**40
"""Seeds below are for development; final ones start at FINAL_FROM + a drawn number of 64 bits × 2^20."""

SEARCHES = ("grid", "adaptive")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a folder's seeds begin, and the code that it began with."""

    first_seed: int
    final: bool
    commit: str
    machine: str
    python: str
    numpy: str
    scipy: str


def origin_of(folder: Path, *, final: bool) -> Origin:
    """As the folder was begun; begins it where it is new."""
    path = folder / "origin.json"
    if path.exists():
        begun = Origin(**json.loads(path.read_text()))
        if begun.final != final:
            kind = "final" if begun.final else "development"
            raise SystemExit(f"{folder} was begun with {kind} seeds; give another folder, or the same option.")
        return begun
    changed = _git("status", "--porcelain", "--untracked-files=no")
    if final and changed:
        raise SystemExit("Final seeds are drawn after the code is committed; commit these first:\n" + changed)
    first = FINAL_FROM + secrets.randbits(64) * 2**20 if final else 0
    commit = _git("rev-parse", "HEAD") + (" with changes" if changed else "")
    found = Origin(first, final, commit, _processor(), platform.python_version(), version("numpy"), version("scipy"))
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(found), indent=2) + "\n")
    return found


def study_all(folder: Path, origin: Origin, families: Sequence[str], each: int, scratch: Path | None) -> None:
    """Family after family in turn, so that a run that is stopped has some of each."""
    kept = {(study["family"], study["seed"]) for study in read(folder)}
    with (folder / "studies.jsonl").open("a") as lines:
        for place in range(each):
            for number, family in enumerate(families):
                seed = origin.first_seed + place
                if (family, seed) in kept:
                    continue
                begun = time.monotonic()
                found = judge(family, seed, SEARCHES[(place + number) % 2], scratch)
                lines.write(json.dumps(found.as_json()) + "\n")
                lines.flush()
                seconds = time.monotonic() - begun
                print(f"{family} {place} {found.search}: {found.cpu_seconds:.1f} s of CPU, {seconds:.1f} s", flush=True)


def read(folder: Path) -> list[dict[str, Any]]:
    """The studies that are done. A last line without its end is that of a killed run, and is dropped."""
    path = folder / "studies.jsonl"
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def page(origin: Origin, studies: Sequence[dict[str, Any]]) -> list[str]:
    command = "python benchmarks/end_to_end_truth/run.py FOLDER"
    kind = "final, drawn after the commit" if origin.final else "of development"
    minutes = sum(study["cpu_seconds"] for study in studies) / 60
    truths = len({(study["family"], study["seed"]) for study in studies})
    return [
        "# The answers of simulated studies, compared with the truth",
        "",
        f"Written by `{command}{' --final' if origin.final else ''} --write`; do not edit.",
        "",
        textwrap.fill(
            f"{len(studies)} studies, {truths} distinct truths, {minutes:.0f} minutes of CPU. Code: commit "
            f"{origin.commit}. Seeds from {origin.first_seed} ({kind}). {origin.machine}, Python {origin.python}, "
            f"numpy {origin.numpy}, scipy {origin.scipy}.",
            120,
        ),
        "",
        textwrap.fill(
            "Loss and tokens are compared with the lowest expected loss among what the search may try: a grid's own "
            "learning rates and extensions, or the half doublings of an adaptive search, at every batch size with "
            "enough steps. Tokens: D/D′ − 1, where the best cell reaches the recommended cell's loss with D′ of the "
            "budget's D tokens in a run of its own. Time: tokens × time per token, against the batch size where that "
            "is least. Intervals of shares are Wilson's at 95 %.",
            120,
        ),
        "",
        *pages(studies, FAMILIES),
        "",
        "## Families",
        "",
        *(f"- {name}: {' '.join((draw.__doc__ or '').split())}" for name, draw in FAMILIES.items()),
    ]


def _git(*words: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(("git", *words), cwd=here, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, one used, {platform.system()}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _finite(value: Any) -> Any:
    """JSON knows no infinity."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=EACH, help="studies per family")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--final", action="store_true", help="seeds that nothing was tuned on")
    parser.add_argument("--scratch", type=Path, help="where studies are written while they run; best in memory")
    parser.add_argument("--write", action="store_true", help="write results.md and results.json")
    arguments = parser.parse_args()
    families = arguments.families.split(",")
    if unknown := set(families) - set(FAMILIES):
        raise SystemExit(f"There is no family {', '.join(sorted(unknown))}; possible: {', '.join(FAMILIES)}.")
    origin = origin_of(arguments.folder, final=arguments.final)
    study_all(arguments.folder, origin, families, arguments.each, arguments.scratch)
    studies = read(arguments.folder)
    lines = page(origin, studies)
    print("\n".join(lines))
    if arguments.write:
        here = Path(__file__)
        here.with_name("results.md").write_text("\n".join(lines) + "\n")
        content = {"origin": asdict(origin), "groups": _finite(aggregates(studies, FAMILIES))}
        here.with_name("results.json").write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
