"""A whole study in MLX, without torch, and the example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchlab.core.spec import DeviceSettings, OptimizerSettings

pytest.importorskip("mlx.core", reason="needs MLX: make test-mlx")
pytestmark = pytest.mark.mlx

from tests.examples.test_examples import load_example, run_check  # noqa: E402

ROOT = Path(__file__).parents[2]


def batchlab(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "batchlab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)


def test_a_whole_study_of_a_recipe(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    settings = ["--token-budget", "16384", "--batch-sizes", "4,8", "--seeds", "2", "--memory-limit", "256MiB"]
    extra = ["--learning-rates", "5e-3,2e-2", "--set", "sweep.max_extensions=0", "--set", "framework=mlx"]
    done = batchlab("study", "quickstart", "--out", str(folder), *settings, *extra)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert json.loads((folder / "experiment.json").read_text())["framework"] == "mlx"
    records = [json.loads(path.read_text()) for path in folder.glob("runs/*/record.json")]
    assert {record["outcome"] for record in records} == {"completed"}
    assert all(record["environment"]["framework"].startswith("mlx ") for record in records)
    kinds = {record["result"]["kind"] for record in records}
    assert {"check", "capacity", "throughput", "train"} <= kinds
    [peak, *_] = [record["result"] for record in records if record["result"]["kind"] == "capacity"]
    assert peak["measured"] == "allocated"
    assert 0 < peak["peak_bytes"] < 256 * 2**20
    rows = [json.loads(line) for path in folder.glob("runs/*/metrics.jsonl") for line in path.read_text().splitlines()]
    assert any("attention_entropy/blocks.0.attention" in (row.get("diagnostics") or {}) for row in rows)
    plan = json.loads((folder / "training_plan.json").read_text())
    assert plan["batch_configuration"]["global_batch_size"] in (4, 8)


def test_the_limit_decides_which_micro_batch_fits(tmp_path: Path) -> None:
    limit = ["--memory-limit", "8MiB", "--headroom", "0", "--set", "framework=mlx"]
    done = batchlab("capacity", "quickstart", "--out", str(tmp_path / "s"), *limit)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not traced" in done.stdout, done.stdout


def test_the_example_is_sound(tmp_path: Path) -> None:
    loaded = load_example("mlx_model.py", tmp_path)
    result = run_check(loaded)
    assert result.passed
    assert {item.name: item.status for item in result.items if item.status != "ok"} == {}
    trainable = loaded.framework.trainable(loaded.task, DeviceSettings(), OptimizerSettings())
    trainable.init(0)
    groups = trainable.optimizer_groups()
    assert [group.learning_rate_ratio for group, _ in groups] == [1.0, 2.0]
    assert [group.weight_decay for group, _ in groups] == [0.1, 0.0]
