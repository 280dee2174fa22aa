"""0.14M-parameter byte-level decoder on the Python standard library's source text; 6 batch sizes × 4 LRs.

The first study to run on a new machine; it takes minutes. The text comes from the installed Python, or from
`data.path`.
"""

from __future__ import annotations

from pathlib import Path

from batchlab.core.spec import Workload
from batchlab.core.task import Task
from batchlab.recipes import Recipe, summary
from batchlab.recipes.model_settings import model_settings, require_heads
from batchlab.recipes.text import next_token_task

MODEL = {"d_model": 64, "layers": 2, "heads": 4, "d_ff": 192, "dropout": 0.0}
"""139,584 parameters at 256 byte values. A run of 262,144 tokens takes about five seconds on one core."""

LEARNING_RATES = (3e-3, 7.5e-3, 1.9e-2, 4.8e-2)
"""The best learning rate of each batch size lies inside this range. Measured on the embedded text with 262,144 tokens
per run, one seed and a finer grid: the best is 4e-3 for batch 2, 5e-3 for 4, 8e-3 for 8, 1.1e-2 for 16, between 1.2e-2
and 2.4e-2 for 32, and flat from 1.2e-2 to 3.2e-2 for 64."""


def task(workload: Workload, cache_dir: Path) -> Task:
    """The decoder of `workload.model` on the text of `workload.data`; cross-entropy in nats per byte."""
    from batchlab.torch_.models import Decoder

    settings = model_settings(workload.model, MODEL)
    require_heads(settings, even=True)

    def model(vocabulary: int) -> Decoder:
        return Decoder(vocabulary=vocabulary, sequence_length=workload.sequence_length, **settings)

    return next_token_task(model, workload, cache_dir)


RECIPE = Recipe(
    name="quickstart",
    summary=summary(__doc__),
    experiment={
        "unit": "tokens",
        "sequence_length": 64,
        "model": MODEL,
        "batch": {"global_batch_sizes": (2, 4, 8, 16, 32, 64)},
        "optimizer": {"reference_batch_size": 16},
        "sweep": {"search": "grid", "learning_rates": LEARNING_RATES},
        "budget": {"token_budget": 262_144},  # 64 steps of the largest batch
        "evaluation": {"points": 8, "samples": 256},
    },
    task=task,
)
