"""Whole studies with real torch training, on small budgets: in real worker processes where they are what is tested."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from batchlab.cli.app import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
ONE_THREAD = ["--set", "device.threads=1"]  # a second one gains nothing on models this small
ONE_SEED = [*ONE_THREAD, "--seeds", "1", "--set", "sweep.max_extensions=0", "--set", "sweep.confirm=0"]
MODEL = [
    "--set",
    "sequence_length=64",
    "--set",
    "model.d_model=64",
    "--set",
    "model.layers=2",
    "--set",
    "model.d_ff=192",
]
SMALL = [*ONE_SEED, "--batch-sizes", "4,8", "--learning-rates", "0.004,0.008", "--token-budget", "25600"]


def shared(*names: str) -> list[str]:
    paths = [DATA / name for name in names]
    for path in paths:
        if not path.exists():
            pytest.skip(f"{path.name} is not beside this checkout (../shared/data)")
    return [str(path) for path in paths]


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "outcomes.csv").open() as file:
        return list(csv.DictReader(file))


def study_with_a_memory_limit(folder: Path, *more: str) -> dict[int, dict[str, str]]:
    """Training runs by batch size, under a limit that holds batch 8 about four times and batch 128 not nearly."""
    run(
        [
            *("study", "quickstart", "--out", str(folder), "--memory-limit", "80MiB", "--batch-sizes", "8,128,256"),
            *("--learning-rates", "0.004", *ONE_SEED, "--token-budget", "32768", "--set", "evaluation.samples=16"),
            *("--set", "device.workers=1", "--set", "device.headroom=30%", *MODEL, *more),
        ]
    )
    return {int(row["global_batch_size"]): row for row in rows(folder)}


def decided_capacity(folder: Path) -> dict[str, Any]:
    decisions: dict[str, dict[str, Any]] = json.loads((folder / "decisions.json").read_text())
    return decisions["micro_batch"]


def test_sizes_beyond_a_memory_limit_are_trained_in_micro_batches(tmp_path: Path) -> None:
    by_size = study_with_a_memory_limit(tmp_path / "s")
    assert set(by_size) == {8, 128, 256}
    assert all(row["outcome"] == "completed" for row in by_size.values())
    largest = decided_capacity(tmp_path / "s")["max_micro_batch_size"]
    assert 8 <= largest < 128
    assert (by_size[8]["micro_batch_size"], by_size[8]["grad_accum_steps"]) == ("8", "1")
    for size in (128, 256):
        assert int(by_size[size]["grad_accum_steps"]) > 1
        assert int(by_size[size]["micro_batch_size"]) <= largest


def test_without_micro_batching_they_are_out_of_memory_and_the_study_finishes(tmp_path: Path) -> None:
    by_size = study_with_a_memory_limit(tmp_path / "s", "--set", "batch.micro_batching=off")
    outcomes = {size: row["outcome"] for size, row in by_size.items()}
    assert outcomes == {8: "completed", 128: "out_of_memory", 256: "out_of_memory"}
    assert "out of memory" in (tmp_path / "s" / "report.md").read_text().lower()


@pytest.mark.usefixtures("without_workers")
def test_a_persons_text_file(tmp_path: Path) -> None:
    (text,) = shared("tinyshakespeare/input.txt")
    arguments = ["study", "quickstart", "--out", str(tmp_path / "s"), "--set", f"data.path={text}", *SMALL]
    assert run(arguments) == 0
    assert all(row["outcome"] == "completed" for row in rows(tmp_path / "s"))


@pytest.mark.usefixtures("without_workers")
def test_two_files_as_training_and_held_out_data(tmp_path: Path) -> None:
    train, valid = shared("wikitext2/valid.txt", "wikitext2/test.txt")
    arguments = ["study", "quickstart", "--out", str(tmp_path / "s"), *SMALL]
    assert run([*arguments, "--set", f"data.path={train}", "--set", f"data.valid_path={valid}"]) == 0
    assert "valid.txt" in (tmp_path / "s" / "report.md").read_text()


@pytest.mark.usefixtures("without_workers")
@pytest.mark.parametrize(
    ("example", "budget", "sample_independent"),
    [("language_model.py", "32768", True), ("image_model.py", "3200", False), ("tabular_model.py", "3200", True)],
)
def test_the_examples(example: str, budget: str, sample_independent: bool, tmp_path: Path) -> None:
    """`batchlab study examples/….py` ends with an answer; the convnet's BatchNorm is found and forbids splitting."""
    folder = tmp_path / "s"
    arguments = ["study", str(ROOT / "examples" / example), "--out", str(folder), "--batch-sizes", "8,16,32"]
    assert run([*arguments, *ONE_SEED, "--max-runs", "3", "--token-budget", budget]) == 0
    checks = [json.loads(path.read_text()) for path in folder.glob("runs/check-*/record.json")]
    assert checks[0]["result"]["sample_independent"] is sample_independent
    if not sample_independent:
        assert "BatchNorm" in (folder / "report.md").read_text()


def test_a_model_that_mixes_samples_is_not_shared_by_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its task does not say so; the check finds the BatchNorm."""
    arguments = ["throughput", str(ROOT / "examples" / "image_model.py"), "--batch-sizes", "8", "--devices", "2"]
    assert run([*arguments, "--out", str(tmp_path / "s")]) == 1
    assert "mixes the samples of a batch" in capsys.readouterr().out
    assert not list((tmp_path / "s").glob("runs/throughput-*"))


def test_a_model_file_outside_the_repository_with_a_module_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "elsewhere"
    project.mkdir()
    (project / "layers.py").write_text("import torch\n\n\ndef network():\n    return torch.nn.Linear(8, 1)\n")
    minimal = (ROOT / "examples" / "minimal.py").read_text()
    (project / "mine.py").write_text("import layers\n" + minimal + "\nmodel = layers.network\n")
    monkeypatch.chdir(tmp_path)
    assert run(["check", "elsewhere/mine.py", *ONE_THREAD]) == 0
    task_info = json.loads(Path("studies/mine/decisions.json").read_text())["task_info"]
    assert {Path(path).name for path in task_info["code"]} == {"mine.py", "layers.py"}
