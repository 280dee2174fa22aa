"""The random state of a training run: the generators of torch, and of Python and numpy for models that use them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), Python and numpy's global generator."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def seed_of_rank(seed: int, rank: int) -> int:
    """A seed for the random numbers that one rank draws in training: dropout must differ between the shares of a batch.

    Rank 0 goes on with those of a run on one device.
    """
    return int(np.random.SeedSequence((seed, rank)).generate_state(1)[0])


def capture(device: torch.device) -> dict[str, Any]:
    """The state of all generators, as tensors, numbers and tuples that `torch.load(weights_only=True)` accepts."""
    numpy_state: Any = np.random.get_state(legacy=True)
    _, keys, position, has_gauss, gauss = numpy_state
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(gauss)),
    }
    if device.type == "cuda":
        state["device"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        state["device"] = torch.mps.get_rng_state()
    return state


def restore(state: dict[str, Any], device: torch.device) -> None:
    """Restore the state returned by `capture`."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["device"], device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state["device"])


@contextmanager
def fixed(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Use one seed inside the context, and restore the previous state afterwards."""
    before = capture(device)
    seed_everything(seed)
    try:
        yield
    finally:
        restore(before, device)
