"""Predictions in a study's folder: asked again they trace nothing, and they depend on everything that traces do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchlab.cli.app import run
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.record import TaskInfo
from batchlab.study.predictions import KEPT, prediction_folder
from batchlab.study.task_source import resolve_task

EXPERIMENT = build_experiment(resolve_task("simulated"))
TASK = TaskInfo.model_validate(
    {
        "unit": "tokens",
        "sequence_length": 1,
        "train_samples": 10,
        "valid_samples": 10,
        "parameter_count": 1,
        "optimizer_family": "adam",
        "data_source": "",
        "data_digest": "d",
        "device": "cpu",
        "code": {"mine.py": "c"},
    }
)


def predicted(capsys: pytest.CaptureFixture[str], study: Path, card: str) -> dict[str, Any]:
    assert run(["capacity", "simulated", "--out", str(study), "--predict", card, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def records(study: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in study.glob("cache/predictions/*/runs/*/record.json")}


def test_a_prediction_is_traced_once_in_a_study(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    study = tmp_path / "s"
    assert run(["capacity", "simulated", "--out", str(study), "--memory-limit", "1GiB"]) == 0
    capsys.readouterr()
    before = (study / "experiment.json").read_bytes()
    first = predicted(capsys, study, "80GiB")
    written = records(study)
    assert written
    assert predicted(capsys, study, "80GiB") == first
    assert records(study) == written
    assert predicted(capsys, study, "40GiB") != first
    assert len(records(study)) > len(written)
    assert (study / "experiment.json").read_bytes() == before


def test_without_a_study_a_prediction_leaves_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    predicted(capsys, tmp_path / "none", "80GiB")
    assert list(tmp_path.iterdir()) == []


def test_code_data_settings_and_card_each_begin_another_prediction(tmp_path: Path) -> None:
    def folder(experiment: Experiment = EXPERIMENT, card: int = 10, **changed: Any) -> Path:
        return prediction_folder(tmp_path, experiment, TASK.model_copy(update=changed), card)

    other = EXPERIMENT.model_copy(update={"sequence_length": EXPERIMENT.sequence_length + 1})
    folders = {folder(), folder(other), folder(card=11), folder(code={"mine.py": "e"}), folder(data_digest="e")}
    assert len(folders) == 5
    assert folder() in folders


def test_the_oldest_predictions_make_room(tmp_path: Path) -> None:
    kept = [prediction_folder(tmp_path, EXPERIMENT, TASK, card) for card in range(KEPT + 2)]
    for path in kept[: KEPT + 1]:
        path.mkdir(parents=True)
    prediction_folder(tmp_path, EXPERIMENT, TASK, KEPT + 1)
    left = {path for path in kept if path.exists()}
    assert len(left) == KEPT - 1
    prediction_folder(tmp_path, EXPERIMENT, TASK, next(card for card, path in enumerate(kept) if path in left))
    assert {path for path in kept if path.exists()} == left
