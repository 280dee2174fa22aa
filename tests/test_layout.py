"""The house as a reader meets it: how many rooms there are, and that sentences for people live in one of them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import batchlab
from batchlab.core import errors

SOURCE = Path(batchlab.__file__).parent
MOST_ENTRIES, MOST_ROOMS = 28, 39
SENTENCE = 6
"""Words, which have a letter, from which on a string literal counts as a sentence."""


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts)


def error_names() -> set[str]:
    """The classes of core.errors, and those of other modules that are derived from them."""
    names = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    classes = [node for path in modules() for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    for node in classes:
        if isinstance(node, ast.ClassDef) and names & {base.id for base in node.bases if isinstance(base, ast.Name)}:
            names.add(node.name)
    return names


EXEMPT = {"Field", "Parameter", "App", "compile"} | error_names()
"""Calls whose texts are no report: descriptions of settings, command-line help, regular expressions, and errors, which
are worded where they are raised."""

ASSERTIONS = {"require", "require_raises"}
"""Calls of the contract tests in `batchlab.testing`, whose texts are for developers."""


def test_the_package_has_few_entries() -> None:
    entries = [path for path in SOURCE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES, sorted(path.name for path in entries)


def test_the_package_has_few_rooms() -> None:
    folders = {path.parent for path in modules()} - {SOURCE}
    files = [path for path in modules() if path.parent == SOURCE]
    assert len(folders) + len(files) <= MOST_ROOMS, sorted(map(str, [*folders, *files]))


def literal(node: ast.AST) -> str | None:
    """The text of a string literal or f-string, without what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "" for part in node.values)
    return None


def word_count(text: str) -> int:
    return sum(any(map(str.isalpha, word)) for word in text.split())


def called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def sentences(source: str, exempt: Collection[str]) -> Iterator[tuple[int, str]]:
    """(line, text) of every sentence that is neither a docstring nor inside a raise, an assert or an `exempt` call."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        text = literal(node)
        if text is None or word_count(text) < SENTENCE or isinstance(parents[node], ast.Expr | ast.JoinedStr):
            continue
        above: ast.AST | None = parents[node]
        while above and not (isinstance(above, ast.Raise | ast.Assert) or called(above) in exempt):
            above = parents.get(above)
        if above is None:
            yield getattr(node, "lineno", 0), text


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_sentences_live_in_words(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    if room != "words":
        exempt = EXEMPT | (ASSERTIONS if room == "testing" else set())
        assert list(sentences(path.read_text(encoding="utf-8"), exempt)) == []


def test_the_rule_finds_sentences_and_only_those() -> None:
    source = """
def f():
    'A docstring may be as long as it likes to be.'
    raise ValueError('an error is worded where it is raised')
x = Field(description='what a setting means is said beside it')
y = f'{one} is a sentence that people would read'
z = 'five words are no sentence'
"""
    assert list(sentences(source, EXEMPT)) == [(6, " is a sentence that people would read")]
