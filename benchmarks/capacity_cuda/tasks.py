"""The workloads of benchmarks/trace_accuracy as batchlab tasks, one variable each: `tasks.py:decoder`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "trace_accuracy"))

from workloads import WORKLOADS, Workload

import batchlab
from batchlab.core.protocols import Batch
from batchlab.core.task import Task

TRAIN, VALID = 384, 128


class Endless:
    """A few samples served as about a million, so that no batch is larger than the data."""

    def __init__(self, name: str, parts: Batch) -> None:
        self.digest = name
        self._parts = parts

    def __len__(self) -> int:
        return 2**20

    def gather(self, indices: np.ndarray) -> Batch:
        chosen = indices % len(self._parts[0])
        return tuple(part[chosen] for part in self._parts)


def as_task(workload: Workload) -> Task:
    drawn = workload.batch(TRAIN + VALID)
    return batchlab.task(
        model=workload.model,
        loss=workload.loss,
        train=Endless(f"{workload.name} train", tuple(part[:TRAIN] for part in drawn)),
        valid=Endless(f"{workload.name} valid", tuple(part[TRAIN:] for part in drawn)),
        unit="samples",
    )


def variable(name: str) -> str:
    """The workload's name as a variable in this file: 'GPT-2' → 'gpt_2'."""
    return re.sub(r"\W+", "_", name).strip("_").lower()


TASKS = {variable(workload.name): as_task(workload) for workload in WORKLOADS}
globals().update(TASKS)
