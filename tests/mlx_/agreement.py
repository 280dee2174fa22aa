"""What torch and MLX must agree on: 50 steps from the same weights on the same tokens, and a small sweep on both.

    python -m tests.mlx_.agreement --write        with torch; writes agreement.json, which MLX is compared with

torch is not installed where MLX is tested, so its losses are recorded. A test where torch is installed computes the 50
steps again and compares them with the record.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import batchlab
from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.frameworks import load_framework, models
from batchlab.core.protocols import Finished
from batchlab.core.record import TrainResult
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TrainSpec, Workload
from batchlab.engines.inline import InlineEngine
from batchlab.recipes import recipe

RECORD = Path(__file__).with_name("agreement.json")
STEPS, PARTS = 50, (slice(0, 6), slice(6, 8))
SHAPE = {"vocabulary": 61, "sequence_length": 16, "d_model": 32, "layers": 2, "heads": 4, "d_ff": 48}
BATCH_SIZES, LEARNING_RATES, SEEDS, TOKENS = (4, 8), (5e-3, 2e-2), (0, 1, 2), 16_384


def weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, npt.NDArray[np.float32]]:
    """Initial weights that belong to no framework: ones for norm layers, else normal by a seed of the name."""
    drawn = {}
    for name, shape in shapes.items():
        random = np.random.default_rng(list(name.encode()))
        drawn[name] = np.ones(shape) if "norm" in name else random.normal(scale=shape[-1] ** -0.5, size=shape)
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def loaded(name: str, values: dict[str, npt.NDArray[np.float32]]) -> Any:
    """The Decoder of a framework with these weights."""
    model = models(name).Decoder(**SHAPE)
    if name == "mlx":
        import mlx.core as mx

        return model.load_weights([(key, mx.array(value)) for key, value in values.items()])
    import torch

    model.load_state_dict({key: torch.from_numpy(value) for key, value in values.items()})
    return model


def steps(name: str) -> list[list[float]]:
    """[loss, gradient norm] of each of 50 steps in fp32: AdamW, clipping, micro-batches of 6 and 2 samples; then the
    loss of an evaluation."""
    shapes: dict[str, tuple[int, ...]] = {}
    task = batchlab.task(
        model=lambda: loaded(name, weights(shapes)) if shapes else models(name).Decoder(**SHAPE),
        loss=models(name).next_token_loss,
        train=None,
        valid=None,
    )
    config = OptimizerConfig(weight_decay=0.1, grad_clip=1.0)
    trainable = load_framework(name).trainable(task, DeviceSettings(), OptimizerSettings(config=config))
    trainable.init(0)
    shapes |= {key: value.shape for key, value in trainable.parameters().items()}
    trainable.init(0)
    batches = np.random.default_rng(1).integers(0, SHAPE["vocabulary"], (4, 8, 17))  # repeated, so that it learns them
    rows = []
    for step in range(STEPS):
        tokens = batches[step % 4]
        x, y = tokens[:, :-1], tokens[:, 1:]
        for part in PARTS:
            trainable.accumulate((x[part], y[part]), 1 / y.size)
        stats = trainable.apply(5e-3 * min(1.0, (step + 1) / 5))
        rows.append([float(stats.loss), float(stats.grad_norm)])
    total, count = trainable.evaluate((x, y))
    return [*rows, [float(total) / count, 0.0]]


def cells(name: str) -> dict[str, list[float]]:
    """Batch size and learning rate → held-out loss by seed, of the quickstart's model, initialised by the framework."""
    found = recipe("quickstart")
    workload = Workload(
        task=TaskReference(kind="recipe", target="quickstart"),
        sequence_length=found.experiment["sequence_length"],
        model=dict(found.experiment["model"]),
        framework=name,
    )
    asked = {
        f"{size} at {rate:g}, seed {seed}": TrainSpec(
            workload=workload,
            layout=BatchLayout(global_batch_size=size, micro_batch_size=size, sequence_length=32),
            learning_rate=rate,
            seed=seed,
            token_budget=TOKENS,
            evaluation_interval=TOKENS,
            evaluation_samples=512,
        )
        for size in BATCH_SIZES
        for rate in LEARNING_RATES
        for seed in SEEDS
    }
    losses: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        engine = InlineEngine(Path(folder))
        for label, spec in asked.items():
            engine.submit(spec)
            [event] = [event for event in engine.wait(0) if isinstance(event, Finished)]
            assert isinstance(event.record.result, TrainResult), event.record.reason
            assert event.record.result.val_loss is not None
            losses.setdefault(label.partition(",")[0], []).append(event.record.result.val_loss)
        engine.close()
    return losses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    framework = load_framework("torch").environment(DeviceSettings()).framework
    found = {"torch": framework, "steps": steps("torch"), "cells": cells("torch")}
    text = json.dumps(found, indent=1) + "\n"
    if write:
        RECORD.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
