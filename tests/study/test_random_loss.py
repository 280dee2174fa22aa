"""A study of a loss that draws random numbers, end to end on torch: the diffusion example."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchlab.core.check import CheckResult
from batchlab.core.experiment import build_experiment
from batchlab.core.record import TrainResult
from batchlab.core.settings import merge
from batchlab.core.spec import TrainSpec
from batchlab.engines.inline import InlineEngine
from batchlab.storage.store import Store
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task

EXAMPLE = Path(__file__).parents[2] / "examples" / "diffusion_model.py"
SETTINGS = {
    "batch": {"global_batch_sizes": (32, 128)},
    "sweep": {"search": "grid", "learning_rates": (1e-3, 4e-3), "seeds": 2, "confirm": 0, "max_extensions": 0},
    "budget": {"token_budget": 64 * 128},
    "evaluation": {"points": 2, "samples": 512},
    "diagnostics": "off",
    "noise": {"points": 0},
    "device": {"name": "cpu", "threads": 1, "workers": 1},
}


@pytest.mark.slow
def test_a_diffusion_model_is_studied(tmp_path: Path) -> None:
    asked = build_experiment(merge(resolve_task(os.fspath(EXAMPLE)), SETTINGS))
    done = run_study(asked, tmp_path / "study", lambda path, workers: InlineEngine(path), SilentView())
    assert done.answered
    records = Store.open(tmp_path / "study").records()
    checked = next(record.result for _, record in records if isinstance(record.result, CheckResult))
    assert checked.passed
    assert {item.name: item.status for item in checked.items}["evaluation"] == "note"
    trained = [r.result for s, r in records if isinstance(s, TrainSpec) and isinstance(r.result, TrainResult)]
    for result in trained:
        assert result.val_draws_sd is not None
        assert result.val_error is not None
        assert 0 < result.val_draws_sd < 3 * result.val_error
        assert result.val_loss is not None
        assert result.val_loss < 0.95  # 1 is what predicting no noise at all costs
    surface = done.findings.surface
    assert surface is not None
    assert surface.draws_sd is not None
    assert "The loss draws random numbers" in (tmp_path / "study" / "report.md").read_text()
