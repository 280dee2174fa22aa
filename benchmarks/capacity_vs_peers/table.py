"""Writes the cells of the benchmark as results.md and results.csv."""

from __future__ import annotations

import csv
import platform
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Cell = Mapping[str, Any]
Cells = Mapping[tuple[str, str], Cell]

TOOLS = {
    "batchlab": "batchlab",
    "batchlab --prove": "batchlab --prove",
    "power": "Lightning power",
    "binsearch": "Lightning binsearch",
    "accelerate": "accelerate from 512",
    "plus16": "+16 from 64",
}
COLUMNS = (
    *("row", "tool", "found", "true", "boundary_flips", "probes", "out_of_memory", "steps"),
    *("processor_seconds", "wall_seconds", "sources", "note"),
)


def write_results(rows: Sequence[str], cells: Cells, folder: Path) -> None:
    """results.csv has one line per row and tool; results.md has the tables and their summary."""
    with (folder / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_line(row, tool, cells) for row in rows for tool in TOOLS if (row, tool) in cells)
    (folder / "results.md").write_text(_page(rows, cells))


def _line(row: str, tool: str, cells: Cells) -> list[Any]:
    cell, truth = cells[row, tool], cells.get((row, "truth"), {})
    return [
        row,
        tool,
        cell["found"],
        truth.get("found"),
        truth.get("flips"),
        cell["trials"],
        cell["out_of_memory"],
        cell["steps"],
        cell["processor"],
        cell["wall"],
        cell.get("sources", ""),
        cell["error"].splitlines()[0][:120] if cell["error"] else "",
    ]


def _page(rows: Sequence[str], cells: Cells) -> str:
    shown = [row for row in rows if (row, "truth") in cells]
    head = f"| row | true | {' | '.join(TOOLS.values())} |\n|---|---|{'---|' * len(TOOLS)}\n"
    found = "".join(f"| {r} | {_true(cells, r)} | {' | '.join(_found(cells, r, t) for t in TOOLS)} |\n" for r in shown)
    cost = "".join(f"| {r} | {_true(cells, r)} | {' | '.join(_cost(cells, r, t) for t in TOOLS)} |\n" for r in shown)
    time = "".join(f"| {r} | {_true(cells, r)} | {' | '.join(_time(cells, r, t) for t in TOOLS)} |\n" for r in shown)
    return f"""# The largest batch under a memory limit: results

    python benchmarks/capacity_vs_peers/run.py        # {date.today()}

{_versions()}
One thread. Every answer comes from a fresh, warmed-up process under RLIMIT_DATA = what it holds + limit, with the same
settings of glibc's allocator for all tools (README.md). batchlab also starts its own workers at fixed addresses, as it
always does. *True* is the largest batch that ran three whole steps and an evaluation in 3 of 3 fresh processes. An
asterisk means that a probe just above it passed as well; there, ± 1 counts as exact. n = 1 for each answer.

{_summary(shown, cells)}

{_sources(shown, cells)}
## Largest batch found, and its error

{head}{found}
An answer above the true size is an error, not an advantage: such a batch runs out of memory when it contains the
longest samples.

## Probes / out of memory / finished training steps

{head}{cost}
## Processor seconds of the whole command, start included (and as a multiple of batchlab's)

{head}{time}
Seconds are user and system time of the process and its children, measured while the machine did other work. Wall-clock
seconds, which that work lengthens, are in results.csv.
"""


def _true(cells: Cells, row: str) -> str:
    truth = cells[row, "truth"]
    return f"{truth['found']}{'*' if truth['flips'] else ''}"


def _found(cells: Cells, row: str, tool: str) -> str:
    if (row, tool) not in cells:
        return "not run"
    found, true = cells[row, tool]["found"], cells[row, "truth"]["found"]
    if found is None:
        return "**crash**"
    return f"{found}" if found == true else f"{found} ({found / true - 1:+.0%})"


def _cost(cells: Cells, row: str, tool: str) -> str:
    if (row, tool) not in cells:
        return "–"
    cell = cells[row, tool]
    return f"{cell['trials']} / {cell['out_of_memory']} / {cell['steps']}"


def _time(cells: Cells, row: str, tool: str) -> str:
    if (row, tool) not in cells:
        return "–"
    own = cells.get((row, "batchlab"))
    seconds = cells[row, tool]["processor"]
    return f"{seconds:.0f}" + (f" ({seconds / own['processor']:.1f}×)" if own and tool != "batchlab" else "")


def _summary(rows: Sequence[str], cells: Cells) -> str:
    lines = []
    for tool, name in TOOLS.items():
        have = [(row, cells[row, tool]) for row in rows if (row, tool) in cells]
        if not have:
            continue
        exact = sum(is_exact(cell["found"], cells[row, "truth"]) for row, cell in have)
        failures = sum(cell["out_of_memory"] for _, cell in have)
        probes = [cell["trials"] for _, cell in have]
        lines.append(
            f"- {name}: exact on {exact} of {len(have)} rows, {min(probes)} to {max(probes)} probes, "
            f"{failures} out of memory in all."
        )
    ratios = [
        cells[row, "binsearch"]["steps"] / cells[row, "batchlab"]["steps"]
        for row in rows
        if (row, "binsearch") in cells and cells.get((row, "batchlab"), {}).get("steps")
    ]
    if ratios:
        lines.append(
            f"- Lightning's binsearch runs {min(ratios):.1f} to {max(ratios):.1f} times batchlab's training steps "
            f"(median {statistics.median(ratios):.1f})."
        )
    return "\n".join(lines)


def _sources(rows: Sequence[str], cells: Cells) -> str:
    """The commit of batchlab behind each of its answers; the other tools have the versions above."""
    made: dict[str, list[str]] = {}
    for row in rows:
        for tool in ("batchlab", "batchlab --prove"):
            if commit := cells.get((row, tool), {}).get("sources"):
                made.setdefault(commit, []).append(f"{row} {tool.partition(' ')[2]}".strip())
    texts = (f"- {commit}: {', '.join(answers)}." for commit, answers in made.items())
    wrapped = (textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False) for text in texts)
    return "Commits of batchlab:\n\n" + "".join(f"{text}\n" for text in wrapped)


def is_exact(found: int | None, truth: Cell) -> bool:
    """Equal to the true size, or next to it if the boundary flips."""
    return found is not None and abs(found - truth["found"]) <= (1 if truth["flips"] else 0)


def _versions() -> str:
    names = ("batchlab", "torch", "lightning", "accelerate", "transformers")
    return f"{', '.join(_version(n) for n in names)}; Python {platform.python_version()}, {platform.machine()}, Linux."


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} not installed"
