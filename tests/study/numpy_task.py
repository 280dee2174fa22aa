"""A task in tests/study/numpy_framework.py: softmax regression on points whose classes a plane separates."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.study.numpy_framework import Arrays, NumpyFramework

import batchlab


def model() -> Arrays:
    return {"weight": 0.1 * np.random.normal(size=(6, 3)), "bias": np.zeros(3)}


def loss(model: Arrays, x: Any, y: Any) -> tuple[float, Arrays]:
    logits = x @ model["weight"] + model["bias"]
    wrong = np.exp(logits - logits.max(axis=1, keepdims=True))
    wrong /= wrong.sum(axis=1, keepdims=True)
    mean = float(-np.log(wrong[np.arange(len(y)), y]).mean())
    wrong[np.arange(len(y)), y] -= 1
    return mean, {"weight": x.T @ wrong / len(y), "bias": wrong.mean(axis=0)}


def points(seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(4096, 6))
    plane = np.random.default_rng(5).normal(size=(6, 3))
    return x, (x @ plane + random.gumbel(size=(4096, 3))).argmax(axis=1)


task = batchlab.task(model=model, loss=loss, train=points(0), valid=points(1), framework=NumpyFramework())
