"""The answers of accuracy.py beside the truth, development and held-out models apart."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

HEAD = """# Capacity on models as newcomers write them

    python benchmarks/capacity_vs_peers/accuracy.py{option}

{allocator}

"Small" means that the answer is below the smallest of {truths} true sizes by at most one sample or 1 %; a range has to
begin at most {deep:.0%} below it. "Within noise" means that it is above the smallest but not above the largest of them,
"unsafe" that it is above all. The truth of a row with a range is the largest size that ran 40 different batches, the
largest by content among them; it may be 10 % too small. Sizes come from a trace (traced), from steps run at small sizes
because a trace stopped at values (run), or from probes alone (no). Baselines are what the processes of the probes held
before the measured steps, largest minus smallest. n = 1 answer per model.

The search was changed after rows of both halves had been looked at, so neither half is evidence for other models. The
last table from before that is accuracy.md of commit 6e8c2d1, with an older way to find true sizes.
"""

FIXED = """glibc's allocator takes every piece above 128 KiB from the system and returns it when it is freed, as in the
other benchmarks of this folder. The same steps then need the same memory in nearly every process."""

OWN = """glibc's allocator has the settings that batchlab gives its workers: pieces above 1 MiB are taken from the
system and returned when they are freed, and smaller ones leave holes in a heap. Small models train up to three times as
fast this way as in accuracy.md, and processes differ in what the same steps need."""

DEEPEST = 0.1
"""A range may begin this share below the truth: its lower end has to be safe for batches that were not tried."""


def write_table(entries: dict[str, Entry], path: Path, own_allocator: bool) -> None:
    """Write accuracy.md or own_allocator.md."""
    option, allocator = (" --own-allocator", OWN) if own_allocator else ("", FIXED)
    parts = [HEAD.format(truths=3, deep=DEEPEST, option=option, allocator=allocator)]
    for half in ("development", "held out"):
        rows = [entry for entry in entries.values() if entry["half"] == half]
        if rows:
            parts.append(f"## {half.capitalize()}\n\n{_summary(rows)}\n\n{_table(rows)}\n")
    any_entry = next(iter(entries.values()))
    commits = sorted({entry["sources"] for entry in entries.values()})
    parts.append(
        f"torch {any_entry['torch']}, {any_entry['machine']}, one thread; commits {', '.join(commits)}. The machine "
        "did other work, so seconds say little.\n"
    )
    path.write_text("\n".join(parts))


def verdict(entry: Entry) -> str:
    """exact, small, low or unsafe; refused where there is no answer."""
    found, truth = entry["found"], min(entry["truth"], default=None)
    if found is None or truth is None:
        return "refused"
    if found > truth:
        return "unsafe" if found > max(entry["truth"]) else "within noise"
    if found == truth:
        return "exact"
    near = found >= min(truth - 1, 0.99 * truth)
    near |= entry["up_to"] is not None and found >= (1 - DEEPEST) * truth
    return "small" if near else "low"


def _summary(rows: list[Entry]) -> str:
    verdicts = [verdict(entry) for entry in rows]
    counts = ", ".join(
        f"{name} {verdicts.count(name)}" for name in ("exact", "small", "within noise", "low", "unsafe", "refused")
    )
    probes = {how: [len(e["sizes"]) for e in rows if (e["traced"] == "no") == (how == "not traced")] for how in _HOW}
    spent = "; ".join(f"{how}: {min(n)} to {max(n)} probes" for how, n in probes.items() if n)
    failures = sum(entry["out_of_memory"] for entry in rows)
    seconds = statistics.median(entry["processor"] for entry in rows)
    return (
        f"{len(rows)} models: {counts}. {spent}; {failures} out of memory in all; median {seconds:.0f} processor "
        "seconds per answer."
    )


_HOW = ("traced or run", "not traced")


def _table(rows: list[Entry]) -> str:
    lines = [
        "| model | limit, MB | true | batchlab | verdict | sizes from | probes | out of memory | baselines, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in rows:
        truths = sorted(set(entry["truth"]))
        true = f"{truths[0]} to {truths[-1]}" if len(truths) > 1 else f"{truths[0]}" if truths else "–"
        found = entry["found"] if entry["up_to"] is None else f"{entry['found']} to {entry['up_to']}"
        known = [baseline for baseline in entry["baselines"] if baseline]
        spread = f"{(max(known) - min(known)) / 1e6:.1f}" if known else "–"
        lines.append(
            f"| {entry['name']} | {entry['limit'] / 1e6:g} | {true} | {found} | {verdict(entry)} | {entry['traced']} | "
            f"{len(entry['sizes'])} | {entry['out_of_memory']} | {spread} |"
        )
    return "\n".join(lines)
