"""`batchlab.observe` in MLX loops: the norms that the gradients have, and what a wrong call is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchlab
from batchlab.core.errors import InputError

mx = pytest.importorskip("mlx.core", reason="needs MLX: make test-mlx")
nn = pytest.importorskip("mlx.nn")
optim = pytest.importorskip("mlx.optimizers")
utils = pytest.importorskip("mlx.utils")
pytestmark = pytest.mark.mlx


def squared(gradient: Any) -> float:
    return float(sum(np.square(np.array(value)).sum() for _, value in utils.tree_flatten(gradient)))


def test_the_norms_of_a_loop() -> None:
    mx.random.seed(0)
    model, optimizer = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), optim.SGD(0.01)
    step = nn.value_and_grad(model, lambda x, y: mx.square(model(x) - y).mean())
    obs = batchlab.observe(model, every=2)
    random = np.random.default_rng(0)
    expected = []
    for number in range(8):
        total, parts = None, []
        for _ in range(2):
            x, y = mx.array(random.normal(size=(6, 4))), mx.array(random.normal(size=(6, 1)))
            with obs.micro_batch(tokens=6) as measure:
                _, gradient = step(x, y)
                gradient = utils.tree_map(lambda g: g / 2, gradient)
                measure(gradient)
            parts.append(squared(gradient) * 4)
            total = gradient if total is None else utils.tree_map(mx.add, total, gradient)
        if number % 2:
            expected.append((parts, squared(total)))
        optimizer.update(model, total)
        mx.eval(model.parameters(), optimizer.state)
        obs.step()
    assert len(obs.samples) == 4
    for sample, (parts, whole) in zip(obs.samples, expected, strict=True):
        assert sample.squared_norms == pytest.approx(parts, rel=1e-4)
        assert sample.mean_squared_norm == pytest.approx(whole, rel=1e-4)
    assert obs.peak_bytes is not None
    assert obs.stale_steps == 0
    assert obs.tokens_per_second is not None
    assert "noise scale" in obs.summary()


def train(evaluate: str, *, steps: int = 12, every: int = 100, unused: bool = False) -> str:
    """`summary()` of a loop that computes its arrays in this way."""
    mx.random.seed(0)
    model, optimizer = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), optim.AdamW(0.01)
    if unused:
        model.scale = mx.ones(1)
    gradient_of = nn.value_and_grad(model, lambda x, y: mx.square(model(x) - y).mean())
    state = [model.state, optimizer.state]

    def update(x: Any, y: Any) -> Any:
        loss, gradient = gradient_of(x, y)
        optimizer.update(model, gradient)
        return loss, gradient

    if evaluate.startswith("compiled"):
        mx.eval(state)
        update = mx.compile(update, inputs=state, outputs=state)
    obs = batchlab.observe(model, every=every)
    x, y = mx.ones((6, 4)), mx.ones((6, 1))
    for number in range(steps):
        if evaluate.endswith("before the step"):
            mx.eval(state)
        for _ in range(2):
            with obs.micro_batch(tokens=6) as measure:
                loss, gradient = update(x, y)
                measure(gradient)
        if evaluate.endswith("loss"):
            loss.item()
        if evaluate == "asynchronously":
            mx.async_eval(state)
        if evaluate == "every fourth" and number % 4 == 3:
            mx.eval(state)
        if evaluate.endswith("after the update"):
            mx.eval(state)
        obs.step()
    return obs.summary()


@pytest.mark.parametrize("unused", [False, True], ids=["", "with a parameter of no use"])
@pytest.mark.parametrize(
    "evaluate",
    [
        "after the update", "before the step", "the loss", "asynchronously", "every fourth",
        "compiled, after the update", "compiled, before the step", "compiled, the loss",
    ],
)  # fmt: skip
def test_a_loop_that_computes_is_told_nothing(evaluate: str, unused: bool) -> None:
    assert "mx.eval" not in train(evaluate, unused=unused)


@pytest.mark.parametrize("evaluate", ["never", "compiled, never"])
@pytest.mark.parametrize("every", [7, 100])
def test_a_loop_that_computes_nothing_is_told(evaluate: str, every: int) -> None:
    assert "call mx.eval(model.parameters(), optimizer.state)" in train(evaluate, every=every)


def test_four_steps_say_nothing_yet() -> None:
    assert "mx.eval" not in train("never", steps=4)


def test_a_gradient_that_is_not_handed_over_is_missed() -> None:
    obs = batchlab.observe(nn.Linear(2, 1), every=1)
    with pytest.raises(InputError, match="handed 0 gradients of an MLX model"), obs.micro_batch(tokens=1):
        pass
