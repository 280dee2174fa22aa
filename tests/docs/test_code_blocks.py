"""Code in README.md and docs/: commands parse, documented signatures agree with the code, Python runs."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cyclopts import CycloptsError
from markdown_it import MarkdownIt

from batchlab.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "log.md"),
]

LOOP = """
import torch, batchlab
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accumulation = 1
loss = lambda model, x, y: torch.nn.functional.cross_entropy(model(x), y)
x, y = torch.randn(4, 8), torch.tensor([0, 1, 0, 1])
micro_batches = [(x, y)]
"""
"""The loop that a block about `observe` is part of."""

NOT_RUN = (
    "transformers",
    "TrainingArguments",
    "AutoModel",
    "ft.py",
    "Classifier()",
    "trainer",
    "lightning",
    "mixed",
    "mx.",
)
"""Blocks that use packages or models that no test may download; they have to be valid Python all the same."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    text: str
    language: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
            if token.type in ("fence", "code_block") and token.map:
                yield Block(page, token.map[0] + 1, token.content, token.info)


def commands() -> Iterator[tuple[str, str]]:
    """(where, arguments) of every call of batchlab on a line of its own."""
    scripts = [Block(path, 1, path.read_text(), "sh") for path in sorted((ROOT / "examples").glob("*.sh"))]
    for block in (*blocks(), *scripts):
        joined = block.text.replace("\\\n", " ").replace('"$@"', "")
        for line in joined.splitlines():
            if re.match(r"batchlab [a-z]", line):
                for part in re.split(r" · | && batchlab ", line.removeprefix("batchlab ")):
                    yield block.name, part.split(" > ")[0]


COMMANDS = list(commands())
SIGNATURES = [block for block in blocks() if re.match(r"@?batchlab\.[\w.]+\(", block.text) and " = " not in block.text]


@pytest.mark.parametrize(("where", "text"), COMMANDS, ids=[f"{where} {text[:30]}" for where, text in COMMANDS])
def test_a_command_of_a_page_parses(where: str, text: str) -> None:
    try:
        tokens = shlex.split(text.replace("…", "").replace("|", " "), comments=True)
    except ValueError as error:
        pytest.fail(f"{where}: {error}")
    if (len(tokens) == 1 and tokens[0] in app) or tokens[-1:] == ["STUDY"]:
        return  # a command that is only named
    try:
        app.parse_args(tokens, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        pytest.fail(f"{where}: batchlab {text}: {error}")


@pytest.mark.parametrize("block", SIGNATURES, ids=lambda block: block.name)
def test_a_documented_signature_is_that_of_the_code(block: Block) -> None:
    for path, inside in re.findall(r"^@?(batchlab\.[\w.]+)\(((?:[^()]|\([^()]*\))*)\)", block.text, re.MULTILINE):
        module, _, name = path.rpartition(".")
        parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
        named = [re.split(r"[=:]", part)[0].strip() for part in re.split(r",\s*(?![^()]*\))", inside)]
        for one in named:
            assert one in ("", "*", "…") or one.lstrip("*") in parameters, f"{block.name}: {path} has no {one}"


def programs() -> list[Block]:
    """Blocks that are Python by their fence, or that begin like a program."""
    begins = re.compile(r"(import |from |obs = |args = |def |task = |if __name__)")
    return [block for block in blocks() if block.language == "python" or begins.match(block.text)]


@pytest.mark.parametrize("block", programs(), ids=lambda block: block.name)
def test_python_is_valid_and_runs_where_it_can(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ast.parse(block.text.replace("…", "..."))
    if any(word in block.text for word in NOT_RUN) or not re.match(r"(import |obs = )", block.text):
        return
    monkeypatch.chdir(tmp_path)
    given = LOOP if block.text.startswith("obs = ") else ""
    exec(compile(given + block.text, block.name, "exec"), {"__name__": "page"})


def test_there_is_something_to_test() -> None:
    assert len(COMMANDS) > 40
    assert len(SIGNATURES) > 8
    assert len(programs()) > 8
