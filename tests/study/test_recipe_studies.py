"""The three recipes' quick tests in small: the same path from text to report, on a fraction of the tokens."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from batchlab.cli import run

pytestmark = pytest.mark.slow

SMALLER = {
    "tinystories": ["--batch-sizes", "4,8", "--set", "model.layers=2"],
    "wikitext2": ["--set", "model.layers=1", "--set", "batch.global_batch_sizes=[6,10]"],
    "elman": ["--batch-sizes", "4,8", "--set", "model.depth=1"],
}
LEARNING_RATES = ["--learning-rates", "0.002,0.008"]


@pytest.mark.parametrize("name", SMALLER)
def test_a_quick_test_in_small_ends_with_the_published_columns(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "s"
    arguments = ["study", name, "--quick-test", "--out", str(folder), *SMALLER[name], *LEARNING_RATES]
    arguments += ["--token-budget", "38400", "--set", "sequence_length=32", "--set", "evaluation.samples=32"]
    assert run([*arguments, "--seeds", "1", "--set", "sweep.max_extensions=0", "--set", "sweep.confirm=0"]) == 0
    said = capsys.readouterr().out
    assert "in place of" in said
    assert "cost: 4 runs × 38,400 tokens" in said

    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    trained = [row for row in rows if row["kind"] == "train"]
    assert len(trained) == 4
    for row in trained:
        assert row["outcome"] == "completed"
        for column in ("steps", "seconds", "tokens_per_second", "final_train_loss", "final_val_loss", "best_val_loss"):
            assert float(row[column]) > 0
        assert 1 < float(row["perplexity"]) < 256  # better than guessing among the bytes
        assert float(row["final_grad_norm"]) > 0
    assert any(row["kind"] == "capacity" and float(row["final_train_loss"]) > 0 for row in rows)

    report = (folder / "report.md").read_text()
    assert "One learning rate for all sizes, and each at its own" in report
    for words in ("perplexity", "lowest val loss", "gradient norm", "peak allocated", "peak reserved"):
        assert words in report
