"""Wall time of `batchlab capacity` and of Lightning's BatchSizeFinder in mode binsearch, on the models of models.py.

    pip install -r benchmarks/capacity_vs_peers/requirements.txt
    python benchmarks/capacity_vs_peers/timing.py --minutes 9

Both answer for the same model within the same limit, RLIMIT_DATA above what a warmed-up process holds, in the same
environment, on one thread, and each from the start of its command to its end, imports included. They take turns, and
which one begins alternates from model to model. Run it on an idle machine. What was timed is kept in timing.json and
not timed again, so the same command continues; timing.md is written each time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models import MODELS, Model
from ours import ask_batchlab, sources
from run import ENVIRONMENT

HERE = Path(__file__).parent
RESULTS = HERE / "timing.json"
TOOLS = ("batchlab", "binsearch")
LONGEST_SECONDS = 280

Entries = dict[str, dict[str, dict[str, Any]]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no further model after this time")
    parser.add_argument("--models", default="", help="names separated by commas (default: all)")
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.models.split(",")))
    entries: Entries = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    started = time.monotonic()
    for number, model in enumerate(MODELS):
        if model.name in entries or (wanted and model.name not in wanted):
            continue
        if time.monotonic() - started > 60 * arguments.minutes:
            break
        order = TOOLS if number % 2 == 0 else TOOLS[::-1]
        entries[model.name] = {tool: timed(model, tool) for tool in order}
        RESULTS.write_text(json.dumps(entries, indent=1) + "\n")
        print(model.name, {tool: entries[model.name][tool]["wall"] for tool in TOOLS}, flush=True)
    (HERE / "timing.md").write_text(page(entries))
    return 0


def timed(model: Model, tool: str) -> dict[str, Any]:
    """The answer of one tool and its seconds, with how busy the machine was before."""
    environment = {**os.environ, **ENVIRONMENT}
    load, started = os.getloadavg()[0], time.perf_counter()
    answer = (
        ask_batchlab(model.task_file, model.limit, tool, environment)
        if tool == "batchlab"
        else ask_lightning(model, environment)
    )
    wall = time.perf_counter() - started
    return {**answer, "wall": round(wall, 2), "load": round(load, 2), "sources": sources()}


def ask_lightning(model: Model, environment: Mapping[str, str]) -> dict[str, Any]:
    """The child's answer; a child that dies without one found nothing."""
    command = [sys.executable, str(HERE / "child.py"), str(model.task_file), "binsearch", str(model.limit)]
    with tempfile.TemporaryDirectory() as folder:  # its search leaves a checkpoint where it fails
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=dict(environment),
                cwd=folder,
                check=False,
                timeout=LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"found": None, "error": f"no answer within {LONGEST_SECONDS} s"}
    if done.returncode == 0:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    return {"found": None, "error": (done.stderr.splitlines() or [""])[-1]}


def page(entries: Entries) -> str:
    """timing.md."""
    answered = {name: tools for name, tools in entries.items() if tools["binsearch"]["found"] is not None}
    ratios = {name: tools["batchlab"]["wall"] / tools["binsearch"]["wall"] for name, tools in answered.items()}
    rows = []
    for name, tools in entries.items():
        ours, theirs = (tools[tool] for tool in TOOLS)
        ratio = f"{ratios[name]:.2f}" if name in ratios else "–"
        note = theirs.get("error", "") if name not in ratios else ""
        rows.append(
            f"| {name} | {ours['wall']:.1f} | {ours['found']} | {theirs['wall']:.1f} | {theirs['found']} | {ratio} | "
            f"{ours['load']:.1f}, {theirs['load']:.1f} | {note.replace('|', '/')[:80]} |"
        )
    summary = "No model has been timed."
    if ratios:
        within = sum(ratio <= 1.0 for ratio in ratios.values())
        summary = (
            f"batchlab's time over Lightning's on {len(ratios)} models that both answered: median "
            f"{statistics.median(ratios.values()):.2f}, {min(ratios.values()):.2f} to {max(ratios.values()):.2f}; at "
            f"most 1.0 on {within}. Goals: at most 1.0 on every row, 0.6 in the median. n = 1 per row."
        )
    commits = sorted({tools["batchlab"]["sources"] for tools in entries.values()})
    return f"""# Wall time beside Lightning's binsearch

    python benchmarks/capacity_vs_peers/timing.py

{summary}

Seconds from the start of each command to its end. *Load* is the machine's average over a minute before each of them:
above 0.5 or so, other programs took part of its time.

| model | batchlab, s | found | Lightning, s | found | ratio | load | error of Lightning |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

torch {version("torch")}, lightning {version("lightning")}, {platform.machine()}, {os.cpu_count()} cores, Python
{platform.python_version()}, one thread; commits {", ".join(commits)}.
"""


if __name__ == "__main__":
    raise SystemExit(main())
