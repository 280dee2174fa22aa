from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.analysis.audit.table import Ending, Quantity
from batchlab.audit.reading import read_table
from batchlab.core.errors import InputError

CSV = "batch_size,lr,val_loss,status\n8,1e-3,2.1,ok\n16,1e-3,nan,\n32,1e-3,,oom\n"
TSV = CSV.replace(",", "\t")
MARKDOWN = """
# A report

- Sequence length: 128
- Total tokens: ~1M

| Batch Size | LR | Val Loss | Status |
|---:|---|---|---|
| 8 | 1e-3 | **2.1** | ✓ |
| 16 | 1e-3 | nan | |
| 32 | 1e-3 | N/A | OOM |
"""
JSON_LINES = (
    '{"batch_size": 8, "lr": 0.001, "eval": {"loss": 1}, "val_loss": 2.1}\n'
    '{"batch_size": 16, "lr": 0.001, "val_loss": NaN}\n'
    '{"batch_size": 32, "lr": 0.001, "val_loss": null, "status": "oom"}\n'
)


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", CSV), ("a.tsv", TSV), ("a.md", MARKDOWN), ("a.txt", MARKDOWN), ("a.jsonl", JSON_LINES)]
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)

    entries = read_table(path, {}, {}).entries

    assert [entry.batch for entry in entries] == [8, 16, 32]
    assert [entry.loss for entry in entries] == [2.1, None, None]
    assert [entry.get(Quantity.LEARNING_RATE) for entry in entries] == [1e-3] * 3
    assert [entry.ending for entry in entries] == [Ending.COMPLETED, Ending.DIVERGED, Ending.OUT_OF_MEMORY]


def test_what_a_page_says_of_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(MARKDOWN + "\nGPU 0 has a total capacity of 15.99 GiB. 28.49 GiB allocated by PyTorch.\n")

    *rows, message = read_table(path, {}, {}).entries

    assert all(row.get(Quantity.SEQUENCE_LENGTH) == 128 and row.get(Quantity.TOKENS) == 1e6 for row in rows)
    assert rows[0].line == 9
    assert message.line == 13
    assert message.get(Quantity.PEAK_BYTES) == 28.49 * 2**30


def test_given_facts_fill_what_rows_lack(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("batch_size,tokens\n8,5\n16,\n")

    entries = read_table(path, {}, {"tokens": "1k", "optimizer": "adam"}).entries

    assert [entry.get(Quantity.TOKENS) for entry in entries] == [5, 1000]
    assert entries[0].texts[Quantity.OPTIMIZER] == "adam"


BAD = {
    "empty": ("", "empty"),
    "blank": ("\n \n", "empty"),
    "header only": ("batch_size,loss\n", "no row"),
    "no table": ("hello world\n", "no table"),
    "text in numbers": ("batch_size,loss\neight,2\n", "line 2"),
    "half a sample": ("batch_size,loss\n1.5,2\n", "impossible"),
    "no batch": ("size_of_it,loss\n1,2\n", "no column with a batch size"),
    "too many cells": ("batch_size,loss\n1,2,3\n", "line 2 has 3 cells"),
    "the same column twice": ("batch_size,loss,loss\n1,2,3\n", "two columns"),
    "broken JSON": ('{"batch_size": 8}\n{"batch', "line 2 is not JSON"),
    "JSON array": ('{"batch_size": 8}\n[1]', "line 2 is no object"),
    "negative steps": ("batch_size,steps\n8,-3\n", "impossible"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_get_a_sentence(tmp_path: Path, case: str) -> None:
    text, said = BAD[case]
    path = tmp_path / "a.csv"
    path.write_text(text)

    with pytest.raises(InputError, match=said):
        read_table(path, {}, {})


def test_a_binary_file_and_a_folder_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(b"PK\x03\x04\x00\x00")

    with pytest.raises(InputError, match="not UTF-8 text"):
        read_table(path, {}, {})
    with pytest.raises(InputError, match="folder"):
        read_table(tmp_path, {}, {})
    with pytest.raises(InputError, match="does not exist"):
        read_table(tmp_path / "none.csv", {}, {})
