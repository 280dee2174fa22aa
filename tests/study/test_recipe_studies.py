"""Smaller versions of the recipes' quick tests: the same path from text to report, on a fraction of the tokens."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from batchlab.cli.app import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_workers")]

SMALLER = {
    "tinystories": ["--batch-sizes", "4,8", "--set", "model.layers=2"],
    "wikitext2": ["--set", "model.layers=1", "--set", "batch.global_batch_sizes=[6,10]"],
    "elman": ["--batch-sizes", "4,8", "--set", "model.depth=1"],
}


def smaller(name: str) -> list[str]:
    """Flags for a study of some seconds."""
    axes = [*SMALLER[name], "--learning-rates", "0.002,0.008", "--seeds", "1", "--token-budget", "38400"]
    settings = [
        "sequence_length=32",
        "evaluation.samples=32",
        "sweep.max_extensions=0",
        "sweep.confirm=0",
        "device.threads=1",
    ]
    return [*axes, *(word for setting in settings for word in ("--set", setting))]


@pytest.mark.parametrize("name", SMALLER)
def test_a_quick_test_in_small_ends_with_the_published_columns(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "s"
    assert run(["study", name, "--quick-test", "--out", str(folder), *smaller(name)]) == 0
    said = capsys.readouterr().out
    assert "instead of" in said
    assert "cost: 4 runs × 38,400 tokens" in said

    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    trained = [row for row in rows if row["kind"] == "train"]
    tokens = sorted(int(row["tokens"]) for row in trained)
    assert tokens[-4:] == [38_400] * 4
    assert tokens[:-4] in ([], [19_200])  # half a budget, for the slope, where the learning rate decays
    for row in trained:
        assert row["outcome"] == "completed"
        for column in ("steps", "seconds", "tokens_per_second", "final_train_loss", "val_loss", "best_val_loss"):
            assert float(row[column]) > 0
        assert 1 < float(row["perplexity"]) < 256  # better than guessing among the bytes
        assert float(row["final_grad_norm"]) > 0
    assert any(row["kind"] == "capacity" and float(row["final_train_loss"]) > 0 for row in rows)
    assert {"peak_bytes", "peak_in_use_bytes"} <= rows[0].keys()

    report = (folder / "report.md").read_text()
    for words in ("perplexity", "end above lowest", "gradient norm", "peak memory"):
        assert words in report


BREAKS = """
class Breaks(Decoder):
    passes = 0

    def forward(self, tokens):
        self.passes += self.training
        breaks = self.training and len(tokens) == 8 and self.passes >= 101
        return super().forward(tokens) * (float("nan") if breaks else 1.0)


"""


def test_nan_in_the_middle_of_a_run_is_an_outcome_and_the_study_finishes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of the recipe whose model breaks in step 101 of 150 of batch 8, and not at batch 4."""
    assert run(["recipes", "tinystories", "--python"]) == 0
    given = "    decoder = models(workload.framework).Decoder\n"
    source = capsys.readouterr().out
    assert given in source
    source = source.replace(given, "").replace("return decoder(", "return Breaks(")
    (tmp_path / "mine.py").write_text(
        source.replace("MODEL = {", f"from batchlab.torch_.models import Decoder\n\n{BREAKS}MODEL = {{")
    )
    assert run(["recipes", "tinystories", "--toml", "--quick-test"]) == 0
    settings = capsys.readouterr().out.replace('task = "tinystories"', 'task = "mine.py"')
    (tmp_path / "mine.toml").write_text(settings)
    folder = tmp_path / "s"

    one_pass_a_step = ["--set", "noise.points=0"]
    arguments = ["study", str(tmp_path / "mine.toml"), "--out", str(folder), *smaller("tinystories"), *one_pass_a_step]
    assert run(arguments) == 0
    with (folder / "results.csv").open() as file:
        trained = [row for row in csv.DictReader(file) if row["kind"] == "train"]
    outcomes = {(row["global_batch_size"], row["outcome"]): row for row in trained}
    assert set(outcomes) == {("4", "completed"), ("8", "diverged")}
    broken = outcomes["8", "diverged"]
    reason = "The training loss was NaN at step 101 of 150."
    assert broken["reason"] == reason
    assert broken["steps"] == "101"
    rows = (folder / "runs" / broken["run_id"] / "metrics.jsonl").read_text().splitlines()
    last = json.loads(rows[-1])
    assert (last["step"], last["train_loss"]) == (101, "NaN")

    report = (folder / "report.md").read_text()
    assert reason in report
    assert "step 101" in report
    assert "4 sequences" in report
