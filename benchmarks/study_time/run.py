"""Wall time of one whole study, beside the same study by an earlier commit.

    git worktree add ../earlier 691e2db && make -C ../earlier setup
    .venv/bin/python benchmarks/study_time/run.py ../earlier

Both run study.toml in turn, each time in a fresh folder, each with the virtual environment that `make setup` makes in
its working tree. Writes results.md. It wants an idle machine; a study takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
OWN = HERE.parents[1]
REPEATS, GOAL = 2, 0.85


class Timed(NamedTuple):
    """One whole study: seconds, training runs, tokens, and the machine's load in the minute before it."""

    seconds: float
    runs: int
    tokens: int
    load: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier", type=Path, help="a working tree of the earlier commit")
    earlier = parser.parse_args().earlier.resolve()
    found: dict[Path, list[Timed]] = {earlier: [], OWN: []}
    for _ in range(REPEATS):
        for tree, timed in found.items():
            timed.append(study(tree))
            print(tree, timed[-1], flush=True)
    (HERE / "results.md").write_text(table(found[earlier], found[OWN], commit(earlier), commit(OWN)))
    return 0


def study(tree: Path) -> Timed:
    """Run study.toml with the batchlab of that working tree."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "study"
        command = (str(tree / ".venv/bin/batchlab"), "study", str(HERE / "study.toml"), "--out", str(out))
        began = time.perf_counter()
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        if ended.returncode != 0:
            raise SystemExit(f"{tree}: the study failed.\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        tokens = [trained(record) for record in sorted(out.glob("runs/*/record.json"))]
    return Timed(seconds, sum(count > 0 for count in tokens), sum(tokens), load)


def trained(record: Path) -> int:
    """Tokens of a training run's token budget; 0 for a run that measured something else."""
    spec = json.loads(record.with_name("spec.json").read_text())
    return int(spec["token_budget"]) if spec["kind"] == "train" else 0


def commit(tree: Path) -> str:
    """The commit that a working tree is at."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


def table(earlier: list[Timed], own: list[Timed], earlier_commit: str, own_commit: str) -> str:
    """results.md."""
    ratios = [b.seconds / a.seconds for a, b in zip(earlier, own, strict=True)]
    rows = [
        f"| {name} | {one.seconds:.0f} | {one.runs} | {one.tokens / 1e6:.2f} | {one.load:.1f} |"
        for pair in zip(earlier, own, strict=True)
        for name, one in zip((earlier_commit, own_commit), pair, strict=True)
    ]
    return f"""# A whole study, beside an earlier commit

    python benchmarks/study_time/run.py ../earlier

{own_commit} over {earlier_commit}, pair by pair: {", ".join(f"{ratio:.2f}" for ratio in ratios)} (goal: {GOAL}).

| commit | seconds | training runs | tokens, millions | load before |
|---|---|---|---|---|
{chr(10).join(rows)}

study.toml in this folder; torch {version("torch")}, {platform.machine()}, {os.cpu_count()} cores, Python
{platform.python_version()}.
"""


if __name__ == "__main__":
    raise SystemExit(main())
