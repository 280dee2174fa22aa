"""Named datasets from the `datasets` package: `hf:roneneldan/TinyStories`, or with a split, `hf:NAME:validation`.

The package downloads a dataset once into its own cache. This module writes its text to one file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from batchlab.core.errors import InputError
from batchlab.data.bpe import END_OF_TEXT
from batchlab.data.digests import made_file

HUB = "hf:"


def hub_text(given: str, cache_dir: Path) -> Path:
    """Write the `text` column of a named dataset to a file in `cache_dir`, once; <|endoftext|> follows each row.

    Raises InputError if the datasets package is not installed, the dataset cannot be loaded (no such name, no network),
    or it has no text column.
    """
    name, _, split = given.removeprefix(HUB).partition(":")
    split = split or "train"
    rows = _load(name, split)
    key = hashlib.sha256(f"{name} {split} {getattr(rows, '_fingerprint', '')}".encode()).hexdigest()[:16]
    file = cache_dir / f"{name.replace('/', '--')}-{split}-{key}.txt"
    made_file(file, lambda: _lines(rows))
    return file


def _load(name: str, split: str) -> Any:
    try:
        import datasets
    except ModuleNotFoundError:
        raise InputError(
            f"The named dataset {HUB}{name} needs the datasets package; run: pip install 'batchlab[datasets]', or give "
            "a text file."
        ) from None
    try:
        rows = datasets.load_dataset(name, split=split)
    except (OSError, ValueError) as error:
        raise InputError(
            f"The dataset {name} ({split}) cannot be loaded: {_first_line(error)}. Check the name and the network, or "
            "download its text on another machine and give the file."
        ) from None
    if "text" not in rows.column_names:
        raise InputError(
            f"The dataset {name} has no column named text, only {', '.join(rows.column_names)}; write its text to a "
            "file and use that."
        )
    return rows


def _lines(rows: Iterable[dict[str, str]]) -> Iterator[bytes]:
    for row in rows:
        yield f"{row['text'].strip()}\n{END_OF_TEXT}\n".encode()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
