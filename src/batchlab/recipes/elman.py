"""386M-parameter gated Elman network (E1) on bytes: the largest batch that fits, then batch 64 … 192 × three LRs.

As published: bfloat16, batch sizes from 64 in steps of 16 on a GPU with 47.4 GiB, three steps each, without an
optimizer. `batchlab capacity elman --device cuda` answers the same question including the optimizer. The published test
did not train; the learning rates, weight decay and budget here are common choices for AdamW.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batchlab.core.frameworks import models
from batchlab.core.spec import Workload
from batchlab.core.task import Task
from batchlab.recipes import Recipe, summary
from batchlab.recipes.model_settings import model_settings
from batchlab.recipes.text import next_token_task

MODEL = {"dim": 3584, "depth": 6}
"""386,340,864 parameters at 256 byte values."""


def task(workload: Workload, cache_dir: Path) -> Task:
    """The recurrent model of `workload.model` on the bytes of `workload.data`; cross-entropy in nats per byte."""
    ladder = models(workload.framework).LadderLM
    settings = model_settings(workload.model, MODEL)

    def model(vocabulary: int) -> Any:
        return ladder(vocabulary=vocabulary, **settings)

    return next_token_task(model, workload, cache_dir, "the Pile")


EXPERIMENT = {
    "unit": "tokens",
    "sequence_length": 512,
    "model": MODEL,
    "data": {"tokenizer": "bytes", "vocabulary": 256, "windows": "random"},
    "batch": {"global_batch_sizes": (64, 96, 128, 192)},  # the published sizes with a small common multiple
    "optimizer": {"name": "adamw", "beta1": 0.9, "beta2": 0.999, "across_batch": "fixed"},
    "sweep": {"search": "grid", "learning_rates": (1e-4, 3e-4, 1e-3), "max_extensions": 0, "confirm": 0},
    "budget": {"token_budget": 196_608_000},  # 2,000 steps of batch 192
    "evaluation": {"points": 10, "samples": 128},
    "device": {"precision": "bf16"},
}

LOW_RESOURCE = {
    "model": {"dim": 256},
    "batch": {"global_batch_sizes": (8, 16, 32, 64)},
    "budget": {"token_budget": 40_960_000},
    "device": {"precision": "fp32"},
}

QUICK_TEST = {
    "sequence_length": 64,
    "model": {"dim": 64, "depth": 3},
    "batch": {"global_batch_sizes": (4, 8, 16, 32)},
    "sweep": {"search": "grid", "learning_rates": (2.5e-3, 7.5e-3, 2.2e-2), "seeds": 2},
    "budget": {"token_budget": 131_072},
    "evaluation": {"points": 8, "samples": 256},
    "device": {"precision": "fp32"},
}

RECIPE = Recipe(
    name="elman",
    summary=summary(__doc__),
    experiment=EXPERIMENT,
    task=task,
    model="LadderLM",
    low_resource=LOW_RESOURCE,
    quick_test=QUICK_TEST,
)
