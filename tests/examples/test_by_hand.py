"""examples/by_hand.py runs from top to bottom and ends with the plan of the run with the lowest loss."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from batchlab.core.spec import TrainSpec

SCRIPT = Path(__file__).parents[2] / "examples" / "by_hand.py"


@pytest.mark.slow
def test_its_plan_is_the_best_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(SCRIPT))
    runs = [(spec, record.result) for spec, record in script["records"] if isinstance(spec, TrainSpec)]
    best = min(runs, key=lambda run: run[1].val_loss)[0]

    assert len(runs) == len(script["SIZES"]) * len(script["RATES"])
    assert {result.tokens for _, result in runs} == {script["BUDGET"]}
    assert not any(result.undertrained for _, result in runs)
    assert script["findings"].surface.best.global_batch_size == best.layout.global_batch_size
    printed = capsys.readouterr().out
    assert f"learning_rate = {best.learning_rate:g}\n" in printed
    assert f"steps = {best.steps}\n" in printed


def test_it_fits_on_a_page() -> None:
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 60


def test_its_functions_are_described() -> None:
    described = (SCRIPT.parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    imported = [
        name.strip()
        for line in SCRIPT.read_text(encoding="utf-8").splitlines()
        if line.startswith("from batchlab")
        for name in line.partition(" import ")[2].split(",")
    ]
    assert [name for name in imported if f"`{name}" not in described] == []
