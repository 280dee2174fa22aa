"""Trains with one failing allocation at a time, and prints what each run was recorded as.

`tests/cuda/run --python -m tests.cuda.injected FOLDER 1`: a run of two steps with diagnostics, gradient samples,
evaluation and the state kept at its end is repeated with its first allocation failing, then its second, and so on. With
another number than 1, only every so many allocations. With PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is an
allocation of its own; without, only the segments of the caching allocator are.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import torch
from tests.cuda import card as cards
from tests.cuda import tasks

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.protocols import Finished
from batchlab.core.record import Record
from batchlab.core.spec import (
    DeviceSettings,
    Diagnostics,
    GradientSampling,
    OptimizerSettings,
    TrainSpec,
    Workload,
)
from batchlab.engines.inline import InlineEngine
from batchlab.torch_ import memory

EVERY_ALLOCATION = "PYTORCH_NO_CUDA_MEMORY_CACHING"
TRIES = 1 if EVERY_ALLOCATION in os.environ else 3
"""How often torch asks for one segment: again after freeing what it has cached, in two stages."""

TOKENS_PER_STEP = 4 * 64


def run(seed: int) -> TrainSpec:
    """Every kind of work that a training run does; runs differ in their seed only."""
    return TrainSpec(
        workload=Workload(
            task=TaskReference(kind="file", target=tasks.__file__, attribute="decoder_task"), sequence_length=64
        ),
        layout=BatchLayout(global_batch_size=4, micro_batch_size=2, sequence_length=64),
        learning_rate=1e-3,
        seed=seed,
        token_budget=2 * TOKENS_PER_STEP,
        evaluation_interval=TOKENS_PER_STEP,
        evaluation_samples=4,
        evaluation_batch_size=2,
        log_points=2,
        diagnostics=Diagnostics(level="full", interval=TOKENS_PER_STEP),
        gradients=GradientSampling(every=2, parameters="all"),
        optimizer=OptimizerSettings(config=OptimizerConfig(grad_clip=1.0)),
        keep_end=True,
        device=DeviceSettings(name="cuda"),
    )


def record_of(study: Path, seed: int) -> Record:
    """The record of one run in this process."""
    engine = InlineEngine(study)
    engine.submit(run(seed))
    events = engine.wait(1.0)
    engine.close()
    return next(event.record for event in events if isinstance(event, Finished))


def main(study: Path, stride: int) -> None:
    card = cards.find()
    assert card is not None
    clean = [record_of(study, 0)]  # the process warms up and sets its limit
    card.reset()
    clean.append(record_of(study, 1))
    allocations = card.count("allocations")
    memory.release(torch.device("cuda:0"))
    held = torch.cuda.memory_allocated()
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    left = 0
    tried = range(1, allocations + 1, stride)
    for number in tried:
        with card.failing(number, TRIES):
            record = record_of(study, 1 + number)
        outcomes[record.outcome] += 1
        reasons[record.reason[:60]] += 1
        memory.release(torch.device("cuda:0"))
        left = max(left, torch.cuda.memory_allocated() - held)
        if number == tried[-1]:
            clean.append(record_of(study, -number % 2**20))
    found = {
        "allocations": allocations,
        "tried": len(tried),
        "outcomes": outcomes,
        "reasons": reasons,
        "left_bytes": left,
        "clean": [record.outcome for record in clean],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
