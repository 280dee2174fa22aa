"""The framework around a run: devices, what it sees of training, the model it is recognised by, and no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import batchlab
from batchlab.core.errors import InputError
from batchlab.core.experiment import TaskReference
from batchlab.core.frameworks import load_framework, name_of_model
from batchlab.core.spec import DeviceSettings, Workload
from batchlab.runs.workload import framework_of, load, load_task

mx = pytest.importorskip("mlx.core", reason="needs MLX: make test-mlx")
nn = pytest.importorskip("mlx.nn")
optim = pytest.importorskip("mlx.optimizers")
pytestmark = pytest.mark.mlx

EXAMPLE = Path(__file__).parents[2] / "examples/mlx_model.py"


def written(folder: Path, source: str) -> Workload:
    (folder / "mine.py").write_text(source)
    return Workload(task=TaskReference(kind="file", target=str(folder / "mine.py")))


def test_a_task_is_recognised_by_its_model(tmp_path: Path) -> None:
    loaded = load(Workload(task=TaskReference(kind="file", target=str(EXAMPLE))), tmp_path)
    assert loaded.framework_name == "mlx"
    assert name_of_model(nn.Linear(1, 1)) == name_of_model(nn.Linear) == "mlx"


def test_a_framework_that_is_not_that_of_the_study_is_refused(tmp_path: Path) -> None:
    task = load_task(Workload(task=TaskReference(kind="file", target=str(EXAMPLE))), tmp_path)
    with pytest.raises(InputError, match="no framework 'jax' here"):
        framework_of(task, "jax")
    named = batchlab.task(model=task.model, loss=task.loss, train=None, valid=None, framework="mlx")
    with pytest.raises(InputError, match="computes with mlx, and the setting framework is 'torch'"):
        framework_of(named, "torch")


def test_the_recipe_that_has_no_model_in_mlx_says_so(tmp_path: Path) -> None:
    workload = Workload(task=TaskReference(kind="recipe", target="elman"), framework="mlx")
    with pytest.raises(InputError, match="has no model in 'mlx'; possible: torch"):
        load_task(workload, tmp_path)


def test_a_file_that_trains_while_it_is_imported_is_stopped(tmp_path: Path) -> None:
    source = (
        "import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim\n"
        "model, optimizer = nn.Linear(2, 1), optim.SGD(0.1)\n"
        "gradient = nn.value_and_grad(model, lambda x: model(x).sum())(mx.ones((1, 2)))[1]\n"
        "optimizer.update(model, gradient)\n"
    )
    with pytest.raises(InputError, match="trains"):
        load_task(written(tmp_path, source), tmp_path)
    assert optim.Optimizer.apply_gradients.__name__ == "apply_gradients"


def test_a_file_without_a_task_gets_lines_in_mlx(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has the mlx.nn.Module net, but no task") as caught:
        load_task(written(tmp_path, "import mlx.nn as nn\nnet = nn.Linear(2, 1)\n"), tmp_path)
    assert "nn.losses.cross_entropy" in str(caught.value)


def test_devices() -> None:
    framework = load_framework("mlx")
    assert framework.resolve_device("auto") in ("cpu", "gpu")
    with pytest.raises(InputError, match=r"MLX has no device 'mps' here\. Possible: auto"):
        framework.resolve_device("mps")
    found = framework.environment(DeviceSettings())
    assert found.framework.startswith("mlx ")
    assert found.device_memory_bytes


@pytest.mark.skipif(sys.platform != "darwin", reason="Metal is on Macs only; nobody has run this")
def test_metal_tells_what_it_recommends() -> None:
    framework: Any = load_framework("mlx")
    recommended = mx.device_info()["max_recommended_working_set_size"]
    assert framework.memory_bytes(None, DeviceSettings(name="gpu")) == int(0.8 * recommended)


def test_mlx_alone_imports_no_torch() -> None:
    code = (
        "import sys; from batchlab.core.frameworks import load_framework\n"
        "load_framework('mlx'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
