"""Regular expressions for the losses and steps that a script prints, from the texts in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_HOLE = "\0"
"""Stands for what is filled into a printed text."""

VAL_LOSS = re.compile(
    rf"((?:val|valid|validation|eval|test)\w*[^{_HOLE}\n]{{0,20}}?(?:loss|nll|bpb|ppl)\s*[:=]?\s*){_HOLE}",
    re.IGNORECASE,
)
TRAIN_LOSS = re.compile(rf"(train\w*[ _/]*loss\s*[:=]?\s*){_HOLE}", re.IGNORECASE)
STEP = re.compile(rf"((?:step|iter|iteration)s?\s*[:=#]?\s*){_HOLE}", re.IGNORECASE)


def texts_of(tree: ast.Module) -> Iterator[str]:
    """Every text of the script with holes where values are filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else _HOLE for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[-+.\d]*[a-z]|\{[^{}]*\}", _HOLE, node.value)


def step_pattern(texts: list[str]) -> str | None:
    """A regular expression for the step, by every word that the script has for it."""
    heads = {match.group(1).rstrip() for text in texts for match in STEP.finditer(text)}
    words = sorted({re.escape(head) for head in heads}, key=lambda word: (-len(word), word))
    return rf"(?:{'|'.join(words)})\s*(\d+)" if len(words) > 1 else rf"{words[0]}\s*(\d+)" if words else None


def loss_pattern(texts: list[str], wanted: re.Pattern[str]) -> str | None:
    """A regular expression with one group for the number that a text prints; the last such text of the script."""
    found = [match for text in texts for match in wanted.finditer(text)]
    if not found:
        return None
    before = re.sub(r"(\\? )+", r"\\s+", re.escape(found[-1].group(1).rstrip()))
    space = r"\s*" if found[-1].group(1) != found[-1].group(1).rstrip() else ""
    return rf"{before}{space}(\S+)"
