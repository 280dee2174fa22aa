"""Does the audit find the errors that people make, and does it leave clean tables alone?

    python benchmarks/audit_planted/run.py [--clean N] [--each N] [--final] [--write]

Draws N clean tables (clean.py), plants each kind of error (plants.py) into as many others, alone and in pairs, writes
each as CSV and audits the file. Recall: the share of planted errors whose kind is found. A false alarm is a clean table
with any finding but those that it was drawn with (a single seed; without seeds a best that leads by chance).
Without --final the seeds are those of development. With it they are drawn by the operating system, which takes a
committed working tree. `--write` writes results.md.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import secrets
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random

import clean
from plants import PLANTS

from batchlab.analysis.audit.audit import audit_table
from batchlab.audit.reading import read_table

GOAL_RECALL, GOAL_FALSE = 0.95, 0.01


def kinds_in(table: clean.Table, folder: Path) -> set[str]:
    """The kinds of flaws that the audit finds in the table's file."""
    path = folder / "table.csv"
    path.write_text(table.as_csv())
    return {type(flaw).__name__ for flaw in audit_table(read_table(path, {}, {})).flaws}


def false_alarms(seed: int, count: int, folder: Path) -> Counter[str]:
    """Kinds found in clean tables, beside `tables` with any."""
    found: Counter[str] = Counter()
    for number in range(count):
        table = clean.draw(Random(f"{seed} clean {number}"))
        expected = {"OneSeed"} if table.seeds == 1 else set()
        extra = kinds_in(table, folder) - expected
        found.update(extra)
        found["tables"] += bool(extra)
    return found


def recall(seed: int, each: int, folder: Path) -> tuple[dict[str, list[bool]], int]:
    """Kind → whether it was found, for every table into which it was planted; and the number of tables."""
    single = [(plant,) for plant in PLANTS.values()]
    pairs = [pair for pair in itertools.combinations(PLANTS.values(), 2) if not pair[0].touches & pair[1].touches]
    found: dict[str, list[bool]] = defaultdict(list)
    tables = 0
    for planted in (*single * each, *pairs * max(1, each // 10)):
        random = Random(f"{seed} planted {tables}")
        table = clean.draw(random)
        for plant in planted:
            plant.apply(table, random)
        seen = kinds_in(table, folder)
        for plant in planted:
            found[plant.kind].append(plant.kind in seen)
        tables += 1
    return found, tables


def page(seed: int, final: bool, alarms: Counter[str], count: int, found: dict[str, list[bool]], tables: int) -> str:
    false = alarms.pop("tables") / count
    lines = [
        "# Errors planted into tables, and clean tables",
        "",
        "Written by `python benchmarks/audit_planted/run.py --final --write`; do not edit."
        if final
        else "Seeds of development.",
        "",
        f"{count} clean and {tables} planted tables, each distinct. Seed {seed}, commit {_git('rev-parse', 'HEAD')}, "
        f"Python {platform.python_version()}.",
        "",
        f"False alarms: {100 * false:.1f} % of clean tables (goal ≤ {100 * GOAL_FALSE:.0f} %)"
        + (f"; {', '.join(f'{kind} {number}' for kind, number in alarms.most_common())}." if alarms else "."),
        "",
        f"| kind | planted | found | recall (goal ≥ {100 * GOAL_RECALL:.0f} %) |",
        "|---|---:|---:|---:|",
        *(
            f"| {kind} | {len(hits)} | {sum(hits)} | {100 * sum(hits) / len(hits):.1f} % |"
            for kind, hits in sorted(found.items())
        ),
    ]
    return "\n".join(lines) + "\n"


def _git(*words: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", type=int, default=600)
    parser.add_argument("--each", type=int, default=40)
    parser.add_argument("--final", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    if given.final and _git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("Final seeds are drawn after the code is committed; commit first.")
    seed = secrets.randbits(64) if given.final else 0
    with tempfile.TemporaryDirectory() as folder:
        alarms = false_alarms(seed, given.clean, Path(folder))
        found, tables = recall(seed, given.each, Path(folder))
    text = page(seed, given.final, alarms, given.clean, found, tables)
    print(text, end="")
    if given.write:
        (Path(__file__).parent / "results.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
