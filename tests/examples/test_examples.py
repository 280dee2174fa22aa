"""The example task files do what they say: they load as a study loads them, pass the check, and stay short."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from batchlab.core.batch import Unit
from batchlab.core.check import CheckResult
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.check import check
from batchlab.runs.workload import Loaded, load

EXAMPLES = Path(__file__).parents[2] / "examples"
UNITS = {
    "language_model.py": Unit.TOKENS,
    "image_model.py": Unit.SAMPLES,
    "tabular_model.py": Unit.SAMPLES,
    "diffusion_model.py": Unit.SAMPLES,
    "minimal.py": Unit.SAMPLES,
}


def load_example(name: str, cache_dir: Path) -> Loaded:
    return load(Workload(task=TaskReference(kind="file", target=str(EXAMPLES / name))), cache_dir)


def run_check(loaded: Loaded) -> CheckResult:
    own = loaded.task.optimizer is not None
    settings = OptimizerSettings(config=OptimizerConfig(name="task" if own else "adamw"))
    loaded.framework.start(DeviceSettings(), seed=0)
    return check(
        lambda: loaded.framework.trainable(loaded.task, DeviceSettings(), settings),
        train=SampleStream(loaded.train, seed=0),
        valid=loaded.valid,
        train_dataset=loaded.train,
        unit=loaded.task.unit,
        own_optimizer=own,
    )


def test_every_example_is_tested() -> None:
    elsewhere = {"by_hand.py", "mlx_model.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} - elsewhere == set(UNITS)


@pytest.mark.parametrize("name", UNITS)
def test_example_is_sound(name: str, tmp_path: Path) -> None:
    loaded = load_example(name, tmp_path)
    result = run_check(loaded)
    statuses = {item.name: item.status for item in result.items}

    assert loaded.task.unit is UNITS[name]
    assert result.passed
    assert result.sample_independent == (name != "image_model.py")
    assert statuses.pop("splitting") == ("ok" if result.sample_independent else "note")
    assert statuses.pop("evaluation") == ("note" if name == "diffusion_model.py" else "ok")  # its loss draws noise
    statuses.pop("held-out data")  # licence texts recur in the standard library's files
    assert set(statuses.values()) == {"ok"}
    if not result.sample_independent:
        assert "BatchNorm2d" in str(result.mixing_layer)


@pytest.mark.parametrize("name", UNITS)
def test_example_is_short_enough_to_read(name: str) -> None:
    lines = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 80


def test_minimal_example_is_eleven_lines() -> None:
    assert len((EXAMPLES / "minimal.py").read_text(encoding="utf-8").splitlines()) == 11


@pytest.mark.parametrize("name", ["language_model.py", "image_model.py", "tabular_model.py"])
def test_example_opens_with_its_command(name: str) -> None:
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8")))
    assert docstring is not None
    assert f"batchlab study examples/{name}" in docstring.splitlines()[0]


@pytest.mark.parametrize("name", ["image_model.py", "tabular_model.py", "minimal.py"])
def test_generated_data_is_the_same_every_time(name: str, tmp_path: Path) -> None:
    first, second = load_example(name, tmp_path), load_example(name, tmp_path)
    assert first.data_digest == second.data_digest


def test_language_model_keeps_the_ratio_of_its_learning_rates(tmp_path: Path) -> None:
    loaded = load_example("language_model.py", tmp_path)
    trainable = loaded.framework.trainable(loaded.task, DeviceSettings(), OptimizerSettings())
    trainable.init(0)
    before = {name: np.array(value) for name, value in trainable.parameters().items()}
    batch = SampleStream(loaded.train, seed=0).batch(0, 8)
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    trainable.apply(1e-3)
    # Adam's first step is lr · sign(gradient): vectors go twice as far as matrices, which also decay by lr · 0.1.
    moved = {name: np.abs(value - before[name]).max() for name, value in trainable.parameters().items()}
    assert moved["norm.bias"] == pytest.approx(2e-3, rel=1e-3)
    assert moved["head.weight"] == pytest.approx(1e-3, rel=0.05)


def test_tabular_noise_floor_is_as_stated(tmp_path: Path) -> None:
    x, y = load_example("tabular_model.py", tmp_path).valid.gather(np.arange(2000))
    columns = (x.astype(np.float64) + 1) / 2
    known = 10 * np.sin(np.pi * columns[:, 0] * columns[:, 1]) + 20 * (columns[:, 2] - 0.5) ** 2
    known += 10 * columns[:, 3] + 5 * columns[:, 4]
    assert np.mean((y - known) ** 2) == pytest.approx(1.0, abs=0.1)
