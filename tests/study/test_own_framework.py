"""A framework that batchlab has never heard of, through the public contract: a whole study of a task in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.study.numpy_framework import NumpyTrainable
from tests.study.numpy_task import task

from batchlab.cli.app import run
from batchlab.core.experiment import OptimizerConfig
from batchlab.core.spec import OptimizerSettings
from batchlab.testing import check_trainable

ROOT = Path(__file__).parents[2]


def test_contract() -> None:
    settings = OptimizerSettings(config=OptimizerConfig(name="sgd"))
    check_trainable(lambda: NumpyTrainable(task, settings), tuple(part[:9] for part in task.train), tolerance=1e-11)


@pytest.mark.slow
def test_a_whole_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    folder = tmp_path / "s"
    arguments = ["--batch-sizes", "8,32", "--learning-rates", "0.1,0.3,1", "--token-budget", "8192", "--seeds", "2"]
    given = ["tests.study.numpy_task", "--out", str(folder), *arguments, "--set", "optimizer.name=sgd"]
    assert run(["study", *given, "--set", "optimizer.grad_clip=off"]) == 0
    experiment = json.loads((folder / "experiment.json").read_text())
    assert experiment["framework"] == "tests.study.numpy_framework:NumpyFramework"
    records = [json.loads(path.read_text()) for path in folder.glob("runs/*/record.json")]
    assert {record["environment"]["framework"] for record in records} == {f"numpy {np.__version__}"}
    assert {record["outcome"] for record in records} == {"completed"}
    plan = json.loads((folder / "training_plan.json").read_text())
    assert plan["batch_configuration"]["global_batch_size"] in (8, 32)
    assert (folder / "report.html").is_file()
