"""Diagnostic snapshots in MLX compared with direct computation; watching does not change training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.mlx_.test_trainable import TOKENS, VECTORS, cross_entropy, decoder, dropping, make

from batchlab.core.protocols import Diagnosable

mx = pytest.importorskip("mlx.core", reason="needs MLX: make test-mlx")
nn = pytest.importorskip("mlx.nn")
pytestmark = pytest.mark.mlx

from batchlab.mlx_ import anatomy  # noqa: E402
from batchlab.mlx_.attention_entropy import attention_weights, entropies, rows  # noqa: E402
from batchlab.mlx_.modules import Call, _compiles, named_modules, observed_calls  # noqa: E402

DROPPED_VECTORS = {
    "model": lambda: nn.Sequential(nn.Linear(6, 16), nn.BatchNorm(16), nn.Dropout(0.4), nn.Linear(16, 3))
}


def watched_step(trainable: Any, batch: Any, rate: float = 1e-2, detail: Any = "light") -> dict[str, float]:
    trainable.watch(detail)
    trainable.accumulate(batch, 1 / trainable.count(batch))
    trainable.apply(rate)
    return trainable.readings(batch)


@pytest.mark.parametrize("detail", ["light", "full"])
@pytest.mark.parametrize(
    ("settings", "batch"),
    [
        ({"model": dropping}, TOKENS),
        ({"model": dropping, "device": {"compile": "default"}}, TOKENS),
        ({"model": dropping, "device": {"precision": "bf16"}}, TOKENS),
        ({**DROPPED_VECTORS, "loss": cross_entropy, "task": {"sample_independent": False}}, VECTORS),
    ],
)
def test_watching_changes_no_bit(settings: dict[str, Any], batch: Any, detail: str) -> None:
    """Alone, one after the other, because trainables of one process share its random numbers."""

    def after(look: bool) -> tuple[Any, Any]:
        trainable = make(**settings)
        assert isinstance(trainable, Diagnosable)
        trainable.init(0)
        for number in range(4):
            if look and number in (1, 2):
                watched_step(trainable, batch, detail=detail)
            else:
                trainable.accumulate(batch, 1 / trainable.count(batch))
                trainable.apply(1e-2)
        return trainable.parameters(), float(trainable.evaluate(batch)[0])

    (plain, loss), (looked, same) = after(False), after(True)
    assert loss == same
    assert all(np.array_equal(plain[name], looked[name]) for name in plain)


def test_the_readings_of_a_decoder() -> None:
    trainable = make()
    trainable.init(0)
    light, full = watched_step(trainable, TOKENS), watched_step(trainable, TOKENS, detail="full")
    assert set(light) < set(full)
    assert {name for name in light if name.startswith("update_ratio/")} == {
        f"update_ratio/{part}" for part in ("all", "embedding", "blocks.0", "blocks.1", "norm", "head")
    }
    assert {"norm_layer_grad/weight", "activation_rms/blocks.1", "attention_entropy/blocks.0.attention"} <= set(light)
    assert {"grad_norm/blocks.0.attention.output", "attention_entropy/blocks.1.attention/head1"} <= set(full)
    assert all(math.isfinite(value) for value in full.values())
    assert all(full[f"seconds/{phase}"] > 0 for phase in ("data", "forward", "backward", "optimizer"))


def test_gradient_norms_and_updates_against_direct_computation() -> None:
    """Plain SGD without clipping moves by learning rate · gradient."""
    trainable = make(name="sgd", momentum=0.0, weight_decay=0.0, grad_clip=None)
    trainable.init(0)
    before = trainable.parameters()
    trainable.watch("light")
    for part in (slice(6), slice(6, 9)):
        trainable.accumulate(tuple(array[part] for array in TOKENS), 1 / TOKENS[0].size)
    gradients = trainable.gradients()
    stats = trainable.apply(0.5)
    readings = trainable.readings(TOKENS)

    def norm(arrays: Any, part: str = "") -> float:
        return math.sqrt(sum(np.square(value).sum() for name, value in arrays.items() if name.startswith(part)))

    mean = sum(np.abs(g).sum() for g in gradients.values()) / sum(g.size for g in gradients.values())
    assert readings["loss/all"] == pytest.approx(float(stats.loss))
    assert readings["grad_norm/all"] == pytest.approx(norm(gradients), rel=1e-5)
    assert readings["grad_norm/blocks.1"] == pytest.approx(norm(gradients, "blocks.1."), rel=1e-5)
    assert readings["effective_step/all"] == pytest.approx(mean, rel=1e-3)
    ratio = 0.5 * norm(gradients, "blocks.0.") / norm(before, "blocks.0.")
    assert readings["update_ratio/blocks.0"] == pytest.approx(ratio, rel=1e-3)


def test_a_sample_of_a_large_array_tells_its_update() -> None:
    trainable = make(
        lambda: nn.Sequential(nn.Linear(6, 512), nn.Linear(512, 512), nn.Linear(512, 3)),
        cross_entropy,
        name="sgd",
        momentum=0.0,
        weight_decay=0.0,
        grad_clip=None,
    )
    trainable.init(0)
    trainable.watch("light")
    trainable.accumulate(VECTORS, 1 / 9)
    gradients = trainable.gradients()
    trainable.apply(0.5)
    mean = sum(np.abs(g).sum() for g in gradients.values()) / sum(g.size for g in gradients.values())
    assert trainable.readings(VECTORS)["effective_step/all"] == pytest.approx(mean, rel=0.1)


def test_activations_are_those_of_the_blocks() -> None:
    trainable = make(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), cross_entropy)
    trainable.init(0)
    readings = watched_step(trainable, VECTORS)
    inner = trainable.model.layers[0](mx.array(VECTORS[0]))
    assert readings["activation_rms/layers.0"] == pytest.approx(float(mx.sqrt(mx.square(inner).mean())))
    assert not any(name.startswith(("attention", "norm_layer")) for name in readings)
    assert nn.Linear.__call__.__name__ == "__call__", "the classes are as they were"


@pytest.mark.parametrize("mask", [None, "causal", "boolean", "additive"])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_weights_of_attention_give_its_output(mask: str | None, key_heads: int) -> None:
    mx.random.seed(0)
    query = mx.random.normal((2, 4, 5, 8))
    key, value = mx.random.normal((2, key_heads, 7, 8)), mx.random.normal((2, key_heads, 7, 8))
    hidden = mx.arange(7)[None, :] > mx.arange(5)[:, None] + 1
    given = {"boolean": ~hidden, "additive": mx.where(hidden, -1e9, 0.0)}.get(str(mask), mask)
    weights = attention_weights(mx.softmax, query, key, 0.3, given)
    output = mx.fast.scaled_dot_product_attention(query, key, value, scale=0.3, mask=given)
    expected = weights @ mx.repeat(value, 4 // key_heads, axis=1)
    assert rows(5) == [0, 1, 2, 3, 4]
    assert float(mx.abs(output - expected).max()) < 1e-5


def test_entropy_of_known_weights() -> None:
    uniform, sure = mx.full((4,), 0.25), mx.array([1.0, 0.0, 0.0, 0.0])
    found = entropies(mx.stack([mx.stack([uniform, uniform]), mx.stack([sure, mx.zeros(4)])])[None])
    assert found.heads.tolist() == pytest.approx([math.log(4), 0.0])
    assert float(found.uniform) == pytest.approx((2 * math.log(4) + 0) / 3)


class Attention(nn.Module):  # type: ignore[name-defined]
    """A softmax of one's own, inside a function that its author compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def __call__(self, x: Any) -> Any:
        def mix(x: Any) -> Any:
            h = self.inner(x)[None]
            return (mx.softmax(h @ h.swapaxes(-1, -2), axis=-1) @ h)[0]

        return mx.compile(mix)(x)


def test_what_a_person_compiled_is_read_too() -> None:
    trainable = make(lambda: nn.Sequential(Attention(), nn.Linear(6, 3)), cross_entropy)
    trainable.init(0)
    readings = watched_step(trainable, VECTORS)
    assert 0 < readings["attention_entropy/layers.0"] <= readings["attention_entropy_uniform/layers.0"]
    assert _compiles(), "functions are compiled again afterwards"


def test_a_model_comes_apart_into_its_blocks() -> None:
    model = decoder()
    assert list(anatomy.blocks(model)) == ["blocks.0", "blocks.1"]
    assert next(iter(named_modules(model))) == ""
    assert next(iter(anatomy.trainable_parameters(model))) == "embedding.weight"
    assert len(anatomy.norm_parameters(model, anatomy.trainable_parameters(model))["weight"]) == 5
    alone = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    assert list(anatomy.blocks(alone)) == ["layers.0", "layers.1"]
    found = anatomy.norm_parameters(alone, anatomy.trainable_parameters(alone))
    assert found == {"weight": ["layers.1.weight"], "bias": ["layers.1.bias"]}
    alone.layers[0].freeze()
    assert list(anatomy.trainable_parameters(alone)) == ["layers.1.weight", "layers.1.bias"]


class Derived(nn.Linear):  # type: ignore[name-defined]
    def __call__(self, x: Any) -> Any:
        return super().__call__(x)


def test_a_call_is_observed_once_whatever_it_is_derived_from() -> None:
    model, calls = nn.Sequential(Derived(2, 2), nn.Linear(2, 2)), list[Call]()
    with observed_calls(model, calls.append) as running:
        model(mx.ones((1, 2)))
        nn.Linear(2, 2)(mx.ones((1, 2)))  # not of this model
    assert [call.name for call in calls] == ["layers.0", "layers.1", ""]
    assert running == []
