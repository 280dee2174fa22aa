"""Training in MLX: the contract, layouts, resume, precision, limits, and what a wrong task is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchlab
from batchlab.core.errors import InputError
from batchlab.core.experiment import OptimizerConfig
from batchlab.core.protocols import AddedNorms, MeasuresMetric, OutOfMemory
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.testing import check_measured_gradients, check_trainable

mx = pytest.importorskip("mlx.core", reason="needs MLX: make test-mlx")
nn = pytest.importorskip("mlx.nn")
optim = pytest.importorskip("mlx.optimizers")
pytestmark = pytest.mark.mlx

from batchlab.mlx_ import memory  # noqa: E402
from batchlab.mlx_.inspection import InspectableMlxTrainable  # noqa: E402
from batchlab.mlx_.models import Decoder, next_token_loss  # noqa: E402

RANDOM = np.random.default_rng(0)
TOKENS = (RANDOM.integers(0, 17, (9, 8)).astype(np.uint16), RANDOM.integers(0, 17, (9, 8)).astype(np.uint16))
VECTORS = (RANDOM.normal(size=(9, 6)).astype(np.float32), RANDOM.integers(0, 3, 9))


def decoder(dropout: float = 0.0) -> Any:
    return Decoder(17, 8, 16, 2, 2, 24, dropout=dropout)


def dropping() -> Any:
    return decoder(0.3)


def make(
    model: Callable[[], Any] = decoder,
    loss: Callable[..., Any] = next_token_loss,
    device: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    **optimizer: Any,
) -> InspectableMlxTrainable:
    given = batchlab.task(model=model, loss=loss, train=None, valid=None, **(task or {}))
    config = OptimizerConfig(name="task" if given.optimizer else "adamw").model_copy(update=optimizer)
    return InspectableMlxTrainable(given, DeviceSettings(**(device or {})), OptimizerSettings(config=config))


def network() -> Any:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def cross_entropy(model: Any, x: Any, y: Any) -> Any:
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


def two_parts(params: Any, lr: float) -> Any:
    return optim.MultiOptimizer([optim.SGD(2 * lr), optim.AdamW(lr)], [lambda name, _: "norm" in name])


def of_dict(model: Any, batch: Any) -> Any:
    return nn.losses.cross_entropy(model(batch["x"]), batch["more"][0], reduction="mean")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"name": "sgd", "grad_clip": 0.1},
        {"name": "adam"},
        {"device": {"compile": "default"}},
        {"model": dropping},
        {"task": {"optimizer": two_parts}},
        {"task": {"optimizer": lambda model, lr: optim.Lion(lr)}, "learning_rate": 1e-3},
        {"model": network, "loss": cross_entropy, "batch": VECTORS},
        {
            "model": network,
            "loss": of_dict,
            "batch": ({"x": VECTORS[0], "more": (VECTORS[1],)},),
            "task": {"count": lambda batch: len(batch["x"])},
        },
        {"model": network, "loss": lambda m, x, y: (nn.losses.cross_entropy(m(x), y, reduction="sum"), len(y))},
    ],
)
def test_contract(settings: dict[str, Any]) -> None:
    settings = dict(settings)
    batch = settings.pop("batch", VECTORS if settings.get("model") is network else TOKENS)
    rate = settings.pop("learning_rate", 1e-2)
    check_trainable(lambda: make(**settings), batch, learning_rate=rate)
    if settings.get("model") is dropping:
        return  # two trainables in one process share its random numbers
    check_measured_gradients(lambda: make(**settings), batch, tolerance=1e-5)


def test_contract_in_bf16() -> None:
    check_trainable(lambda: make(device={"precision": "bf16"}), TOKENS, tolerance=2e-3)
    trainable = make(device={"precision": "bf16"})
    trainable.init(0)
    trainable.accumulate(TOKENS, 1 / 72)
    trainable.apply(1e-2)
    assert {value.dtype for value in trainable.parameters().values()} == {np.dtype(np.float32)}


def test_only_norm_layers_are_measured() -> None:
    trainable = make()
    trainable.init(0)
    norms = trainable.accumulate_measured([TOKENS, TOKENS], 1 / 144, "norm_layers")
    assert isinstance(norms, AddedNorms)
    named = {name: value for name, value in trainable.gradients().items() if "norm" in name}
    assert float(norms.squared_sum) == pytest.approx(sum((value**2).sum() for value in named.values()), rel=1e-4)
    without = make(network, cross_entropy)
    without.init(0)
    assert without.accumulate_measured([VECTORS, VECTORS], 1 / 18, "norm_layers") == "no_norm_layers"


def test_a_layer_that_mixes_samples_is_named() -> None:
    def mixing() -> Any:
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm(8), nn.Linear(8, 3))

    trainable = make(mixing, cross_entropy)
    trainable.init(0)
    assert trainable.mixing_layer(VECTORS, 4) == "layers.1 (BatchNorm)"
    plain = make(network, cross_entropy)
    plain.init(0)
    assert plain.mixing_layer(VECTORS, 4) is None


def test_batch_norm_trains_and_resumes_to_the_bit() -> None:
    def mixing() -> Any:
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm(8), nn.Linear(8, 3))

    task = {"sample_independent": False}
    check_trainable(lambda: make(mixing, cross_entropy, task=task), VECTORS)


def one_pass(settings: dict[str, Any]) -> None:
    trainable = make(**settings)
    trainable.init(0)
    trainable.accumulate(TOKENS, 1 / 72)
    trainable.synchronize()


def test_a_limit_is_enforced_though_mlx_only_advises(monkeypatch: pytest.MonkeyPatch) -> None:
    before = mx.set_memory_limit(mx.get_memory_limit())
    try:
        memory.bound(200_000)
        with pytest.raises(OutOfMemory, match="the limit is"):
            one_pass({})
    finally:
        mx.set_memory_limit(before)
        memory.bound(None)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": dict}, "model=… returned dict; return an mlx.nn.Module"),
        ({"model": lambda: nn.ReLU()}, "without trainable parameters"),
        ({"loss": lambda m, x, y: float(np.array(m(x)).mean())}, "returned builtins.float, which has no gradient"),
        ({"loss": lambda m, x, y: m(x)}, "an array of shape"),
        ({"task": {"optimizer": lambda params, lr: object()}}, "returned builtins.object for an MLX model"),
        ({"task": {"optimizer": lambda params, lr: params + lr}}, "failed on the parameters of an MLX model"),
        ({"task": {"optimizer": lambda params, lr: optim.Adam(3e-4)}}, "does not follow the learning rate"),
        (
            {"task": {"optimizer": lambda params, lr: optim.Adam(optim.cosine_decay(lr, 10))}},
            "has a schedule of its own",
        ),
        ({"name": "task"}, "the task has no optimizer"),
        ({"device": {"memory_optimizations": ("checkpointing",)}}, "not possible with MLX"),
    ],
)
def test_a_wrong_turn_is_told_in_a_sentence(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        one_pass(settings)


def test_a_metric_is_measured_in_evaluation_mode() -> None:
    def correct(model: Any, x: Any, y: Any) -> Any:
        return (model(x).argmax(axis=-1) == y).mean()

    trainable = make(network, cross_entropy, task={"metric": correct})
    assert isinstance(trainable, MeasuresMetric)
    trainable.init(0)
    total, count = trainable.measure(VECTORS)
    logits = np.array(trainable.model(mx.array(VECTORS[0])))
    assert count == 9
    assert total == pytest.approx(float((logits.argmax(axis=-1) == VECTORS[1]).sum()))


def test_a_loss_computed_in_numpy_has_no_gradient_that_the_check_could_miss() -> None:
    trainable = make(loss=lambda m, x, y: mx.array(np.array(m(x)).mean()))
    trainable.init(0)
    trainable.accumulate(TOKENS, 1 / 72)
    assert not any(value.any() for value in trainable.gradients().values())
