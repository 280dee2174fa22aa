"""notes.md: the experiment page a person fills in, and their words as blocks that a page can show.

The page has the headings of a laboratory notebook. What the study knows is filled in when it knows it, before the
first training run; the rest is the person's. Of their Markdown headings, paragraphs, lists and fenced code are told
apart, and everything else stays as typed; nothing here is HTML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from batchlab.analysis.findings import Findings
from batchlab.core.format import format_hours, format_learning_rate, format_list, format_plural
from batchlab.report.method import setup
from batchlab.report.words import Words

_AXES = ("batch sizes", "learning rates", "seeds", "budget", "device", "versions")
_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*$")
_ITEM = re.compile(r"\s*(?:([-*+])|\d+[.)])\s+(.*)")
_FENCE = re.compile(r"\s*(```+|~~~+)")


class Block(NamedTuple):
    """A piece of somebody's Markdown as plain text; a heading's level counts from 1."""

    kind: Literal["heading", "paragraph", "bullets", "numbers", "code"]
    texts: tuple[str, ...]
    level: int = 0


def notes_page(findings: Findings, rates: Sequence[float], budget: Mapping[str, Any]) -> str:
    """The page as Markdown; `rates` are the first learning rates, `budget` what the study decided to spend."""
    experiment, words = findings.experiment, Words.of(findings)
    terms = dict(setup(findings))
    frozen = "\n".join(f"- {name}: {text}" for name, text in terms.items() if name not in _AXES)
    sizes = experiment.batch.global_batch_sizes
    seconds = budget.get("seconds_planned")
    design = [
        f"- {format_plural(budget['runs_planned'], 'training run')} planned, {budget['runs_at_most']:,} at most: "
        f"{experiment.sweep.search} search over batch × LR, then seeds",
        f"- {budget['token_budget']:,} {words.units} each, so batch {sizes[-1]:,} gets "
        f"{budget['token_budget'] // (sizes[-1] * experiment.sequence_length):,} steps and batch {sizes[0]:,} "
        f"{budget['token_budget'] // (sizes[0] * experiment.sequence_length):,}",
        f"- {format_hours(seconds / 3600)} of training at measured speed"
        if seconds
        else "- time: not known before it ran",
        f"- the same {words.items} in the same order for every size; compared at equal {words.units}",
    ]
    if budget["undertrained"]:
        design.append(f"- too few steps to be judged: batch {format_list(budget['undertrained'])}")
    return _PAGE.format(
        name=experiment.name,
        units=words.units,
        frozen=frozen,
        sizes=format_list(sizes),
        rates=format_list([format_learning_rate(rate) for rate in rates]),
        seeds=terms["seeds"],
        design="\n".join(design),
    )


_PAGE = """# {name}

batchlab made this page once, before the first training run, and never writes to it again. The report shows it once you
have changed something.

## Objective

Which batch size and learning rate to train this with, for the best validation loss after equal {units}?

## Hypothesis

What do you expect, and why? Say it before the results are in.

## Frozen variables

{frozen}

## Independent variables

- batch size: {sizes}
- learning rate: {rates}
- seed: {seeds}

## Design and budget

{design}

## Expected outcome

Which result would confirm the hypothesis, and which would refute it?

## Results

[report.html](report.html) · [report.md](report.md) · [results.csv](results.csv) ·
[training_plan.json](training_plan.json)

## Interpretation

What do the results say about the hypothesis? What else could explain them?

## What we adopt

Which settings go into the next training run, and for how long do they hold?

## Follow-ups

Which question comes next?
"""


def notes_blocks(text: str) -> tuple[Block, ...]:
    """Headings, paragraphs, lists and code of a Markdown text, in order."""
    found: list[Block] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.match(line):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == fence[1]), len(lines))
            found.append(Block("code", ("\n".join(lines[at + 1 : end]),)))
            at = end + 1
            continue
        at += 1
        if heading := _HEADING.match(line):
            found.append(Block("heading", (heading[2],), len(heading[1])))
        elif item := _ITEM.match(line):
            kind: Literal["bullets", "numbers"] = "bullets" if item[1] else "numbers"
            goes_on = found and found[-1].kind == kind and at >= 2 and lines[at - 2].strip()
            before = found.pop().texts if goes_on else ()
            found.append(Block(kind, (*before, item[2])))
        elif line.strip():
            text_so_far = found and at >= 2 and lines[at - 2].strip() and found[-1].kind != "heading"
            if text_so_far and found[-1].kind in ("paragraph", "bullets", "numbers"):
                last = found.pop()
                found.append(last._replace(texts=(*last.texts[:-1], f"{last.texts[-1]}\n{line.strip()}")))
            else:
                found.append(Block("paragraph", (line.strip(),)))
    return tuple(found)
