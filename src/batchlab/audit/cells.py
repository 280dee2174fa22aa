"""A file's text as rows of texts: CSV, TSV, JSON Lines, or the tables and `- name: value` lines of a Markdown page."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchlab.core.errors import InputError, quote

MOST_BYTES = 256 * 2**20
MOST_ROWS = 1_000_000
MOST_COLUMNS = 1000
MOST_CELL = 100_000
"""Characters of one cell."""


@dataclass(frozen=True, slots=True)
class TextRow:
    """Column → text, as written; `line` of the file, from 1."""

    line: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TextTable:
    """`facts`: what the text around a Markdown table says of all rows, by its own names. `prose`: that text."""

    columns: tuple[str, ...]
    rows: tuple[TextRow, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    prose: str = ""


def read_text(path: Path) -> str:
    """The text of a file. Raises InputError where it is too large, empty or no text."""
    if path.is_dir():
        raise InputError(f"{quote(str(path))} is a folder; give a CSV, TSV, JSON Lines or Markdown file.")
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise InputError(f"{quote(str(path))} does not exist; give a CSV, TSV, JSON Lines or Markdown file.") from None
    if size > MOST_BYTES:
        raise InputError(f"{quote(str(path))} has {size / 2**20:,.0f} MiB; a table may have at most 256 MiB.")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(
            f"{quote(str(path))} is not UTF-8 text; export the table as CSV, TSV, JSON Lines or Markdown and give that."
        )
    if not text.strip():
        raise InputError(f"{quote(str(path))} is empty; give a table with a header and one row per run.")
    return text


def parse_table(path: Path) -> TextTable:
    """The table in a file. Raises InputError where none is found, or it has no row."""
    text = read_text(path)
    first = text.lstrip()[0]
    if path.suffix.lower() in (".jsonl", ".ndjson") or (first == "{" and path.suffix.lower() != ".md"):
        table = _json_lines(path, text)
    elif path.suffix.lower() in (".md", ".markdown") or re.search(r"^\s*\|?\s*:?-{3,}.*\|", text, re.MULTILINE):
        table = _markdown(path, text)
    else:
        table = _delimited(path, text)
    if not table.rows:
        raise InputError(f"{quote(str(path))} has a header but no row; give a table with one row per run.")
    if len(table.columns) > MOST_COLUMNS:
        raise InputError(f"{quote(str(path))} has {len(table.columns):,} columns; at most 1,000 are read.")
    return table


def _delimited(path: Path, text: str) -> TextTable:
    header = next(line for line in text.splitlines() if line.strip())
    delimiter = max("\t,;|", key=header.count)
    if delimiter not in header:
        raise InputError(
            f"{quote(str(path))} is no table: its first line has no comma, tab, semicolon or bar. Give CSV, TSV, JSON "
            "Lines or a Markdown table with a header."
        )
    csv.field_size_limit(MOST_CELL)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    columns: tuple[str, ...] = ()
    rows: list[TextRow] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = _distinct(path, [cell.strip() for cell in cells])
            else:
                _require_width(path, reader.line_num, len(cells), len(columns))
                rows.append(
                    TextRow(reader.line_num, dict(zip(columns, (cell.strip() for cell in cells), strict=False)))
                )
                _require_few(path, rows)
    except csv.Error as error:
        raise InputError(f"{quote(str(path))}, line {reader.line_num}: {error}; fix that line.") from None
    return TextTable(columns, tuple(rows))


def _json_lines(path: Path, text: str) -> TextTable:
    columns: dict[str, None] = {}
    rows: list[TextRow] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            raise InputError(f"{quote(str(path))}, line {number} is not JSON; give one object per line.") from None
        if not isinstance(value, dict):
            raise InputError(f"{quote(str(path))}, line {number} is no object; give one JSON object per line.")
        flat = dict(_flat(value))
        columns.update(dict.fromkeys(flat))
        rows.append(TextRow(number, flat))
        _require_few(path, rows)
    return TextTable(tuple(columns), tuple(rows))


def _flat(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{key}.")
        elif item is not None and not isinstance(item, list):
            yield f"{prefix}{key}", _plain(item)


def _plain(item: object) -> str:
    if isinstance(item, float) and math.isinf(item):
        return "inf"
    return str(item)


def _markdown(path: Path, text: str) -> TextTable:
    """The widest table of the page: of equally wide ones the longest. Its other lines are facts and prose."""
    lines = text.splitlines()
    tables: list[tuple[tuple[str, ...], list[TextRow]]] = []
    inside: set[int] = set()
    for place, line in enumerate(lines[1:], start=1):
        if not re.fullmatch(r"\s*\|?(\s*:?-{2,}:?\s*\|)*\s*:?-{2,}:?\s*\|?\s*", line) or "|" not in lines[place - 1]:
            continue
        columns = _distinct(path, _bars(lines[place - 1]))
        rows: list[TextRow] = []
        inside |= {place - 1, place}
        for number in range(place + 1, len(lines)):
            if "|" not in lines[number]:
                break
            inside.add(number)
            cells = _bars(lines[number])
            _require_width(path, number + 1, len(cells), len(columns))
            rows.append(TextRow(number + 1, dict(zip(columns, cells, strict=False))))
            _require_few(path, rows)
        tables.append((columns, rows))
    if not tables:
        raise InputError(f"{quote(str(path))} has no Markdown table; give one with a header and one row per run.")
    columns, rows = max(tables, key=lambda table: (len(table[0]), len(table[1])))
    outside = ["" if number in inside else line for number, line in enumerate(lines)]
    facts: dict[str, str] = {}
    for line in outside:
        match = re.fullmatch(r"\s*[-*+]\s+\**([^:*]{1,60})\**\s*:\**\s*(.{1,200})", line)
        if match:
            facts.setdefault(match[1].strip(), match[2].strip())
    return TextTable(columns, tuple(rows), facts, "\n".join(outside))


def _bars(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip().strip("*`").strip() for cell in re.split(r"(?<!\\)\|", inner)]


def _distinct(path: Path, columns: list[str]) -> tuple[str, ...]:
    twice = {name for name in columns if name and columns.count(name) > 1}
    if twice:
        raise InputError(f"{quote(str(path))} has two columns called {quote(min(twice))}; rename one of them.")
    return tuple(name or f"column {place}" for place, name in enumerate(columns, start=1))


def _require_width(path: Path, line: int, found: int, expected: int) -> None:
    if found > expected:
        raise InputError(
            f"{quote(str(path))}, line {line} has {found} cells but the header has {expected}; quote commas in cells."
        )


def _require_few(path: Path, rows: list[TextRow]) -> None:
    if len(rows) > MOST_ROWS:
        raise InputError(f"{quote(str(path))} has more than 1,000,000 rows; give one row per run.")
