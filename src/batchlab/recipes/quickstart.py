"""0.03M-parameter byte-level decoder on the Python standard library's source text; batch 2, 16, 128 × 4 LRs.

The first study to run on a new machine; it takes minutes. The text comes from the installed Python, or from
`data.path`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batchlab.core.frameworks import models
from batchlab.core.spec import Workload
from batchlab.core.task import Task
from batchlab.recipes import Recipe, summary
from batchlab.recipes.model_settings import model_settings, require_heads
from batchlab.recipes.text import next_token_task

MODEL = {"d_model": 32, "layers": 1, "heads": 2, "d_ff": 96, "dropout": 0.0}
"""29,792 parameters at 256 byte values."""

LEARNING_RATES = (1.25e-3, 5e-3, 2e-2, 8e-2)
"""Parabolas through a grid a factor of 3 apart (one seed, 1,048,576 tokens) are lowest at 4.7e-3 for batch 2 and at
2.0e-2 for batch 16; at batch 128, 5e-2 and 0.157 end 0.02 nats apart. With a factor of 4 the neighbours of the best are
well above it."""

# Eight apart: sizes closer to each other differ by less than their seeds, so that the answer would hang on the seed and
# on the processor's instructions (docs/recipes.md).
BATCH_SIZES = (2, 16, 128)


def task(workload: Workload, cache_dir: Path) -> Task:
    """The decoder of `workload.model` on the text of `workload.data`; cross-entropy in nats per byte."""
    decoder = models(workload.framework).Decoder
    settings = model_settings(workload.model, MODEL)
    require_heads(settings, even=True)

    def model(vocabulary: int) -> Any:
        return decoder(vocabulary=vocabulary, sequence_length=workload.sequence_length, **settings)

    return next_token_task(model, workload, cache_dir)


RECIPE = Recipe(
    name="quickstart",
    summary=summary(__doc__),
    experiment={
        "unit": "tokens",
        "sequence_length": 32,
        "model": MODEL,
        "batch": {"global_batch_sizes": BATCH_SIZES},
        "optimizer": {"reference_batch_size": 16},
        "sweep": {"search": "grid", "learning_rates": LEARNING_RATES},
        "budget": {"token_budget": 1_048_576},  # 256 steps of the largest batch
        "evaluation": {"points": 4, "samples": 4096},
    },
    task=task,
)
