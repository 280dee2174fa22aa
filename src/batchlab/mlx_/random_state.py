"""The random state of a training run: MLX's key, and the generators of Python and numpy for models that use them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np


def seed_everything(seed: int) -> None:
    """Seed MLX, Python and numpy's global generator."""
    mx.random.seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def capture() -> dict[str, Any]:
    """The state of all generators, as JSON can hold it. Waits until MLX's key is computed."""
    numpy_state: Any = np.random.get_state(legacy=True)
    _, keys, position, has_gauss, gauss = numpy_state
    version, internal, following = random.getstate()
    return {
        "mlx": mx.random.state[0].tolist(),
        "python": [version, list(internal), following],
        "numpy": [keys.tolist(), int(position), int(has_gauss), float(gauss)],
    }


def restore(state: dict[str, Any]) -> None:
    """Restore the state returned by `capture`.

    MLX's key cannot be assigned, but a seed of 64 bits becomes its two halves.
    """
    high, low = state["mlx"]
    mx.random.seed((high << 32) | low)
    version, internal, following = state["python"]
    random.setstate((version, tuple(internal), following))
    keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, gauss))


@contextmanager
def fixed(seed: int = 0) -> Iterator[None]:
    """Use one seed inside the context, and restore the previous state afterwards."""
    before = capture()
    seed_everything(seed)
    try:
        yield
    finally:
        restore(before)
