"""22.7M-parameter decoder (RoPE, SwiGLU, RMSNorm), batch 1 … 512 at 327.68M tokens and one LR of 3e-4.

As published: one learning rate for all batch sizes, AdamW with beta2 0.999 and weight decay 0.1, cosine decay to one
tenth after a warm-up of 1 %, TF32 and torch.compile. That learning rate was not tuned for any of the batch sizes.
`--learning-rates 1e-4:3e-3` tunes it for each of them, and the report compares the two.
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

MODEL = {
    "d_model": 512,
    "layers": 4,
    "heads": 16,
    "d_ff": 1344,
    "rope_theta": 10_000.0,
    "dropout": 0.0,
}
"""22,696,448 parameters at a vocabulary of 10,000."""


def task(workload: Workload, cache_dir: Path) -> Task:
    """The decoder of `workload.model` on the text or token ids of `workload.data`; cross-entropy in nats per token."""
    decoder = models(workload.framework).Decoder
    settings = model_settings(workload.model, MODEL)
    require_heads(settings, even=True)

    def model(vocabulary: int) -> Any:
        return decoder(vocabulary=vocabulary, sequence_length=workload.sequence_length, **settings)

    return next_token_task(model, workload, cache_dir, "TinyStories")


EXPERIMENT = {
    "unit": "tokens",
    "sequence_length": 256,
    "model": MODEL,
    "data": {"tokenizer": "bpe", "vocabulary": 10_000},
    "batch": {"global_batch_sizes": (1, 8, 32, 64, 128, 256, 512)},
    "optimizer": {
        "name": "adamw",
        "beta1": 0.9,
        "beta2": 0.999,
        "weight_decay": 0.1,
        "grad_clip": 1.0,
        "across_batch": "fixed",
    },
    "schedule": {"kind": "cosine", "warmup_fraction": 0.01, "final_fraction": 0.1},
    "sweep": {"search": "grid", "learning_rates": (3e-4,), "max_extensions": 0, "confirm": 0},
    "budget": {"token_budget": 327_680_000},  # 2,500 steps of batch 512
    "evaluation": {"points": 20, "samples": 512},
    "device": {"precision": "tf32", "compile": "default"},
}

LOW_RESOURCE = {
    "batch": {"global_batch_sizes": (1, 8, 32, 64, 128)},
    "budget": {"token_budget": 40_960_000},
    "device": {"precision": "fp32", "compile": "off"},
    "evaluation": {"target_loss": 2.0},
}

QUICK_TEST = {
    "sequence_length": 64,
    "model": {"d_model": 64, "heads": 2, "d_ff": 168},
    "data": {"tokenizer": "bytes", "vocabulary": 256},
    "batch": {"global_batch_sizes": (2, 8, 16, 32)},
    "sweep": {"search": "grid", "learning_rates": (1.5e-3, 5e-3, 1.5e-2), "seeds": 2},
    "schedule": {"warmup_fraction": 0.1},
    "budget": {"token_budget": 131_072},
    "evaluation": {"points": 8, "samples": 256},
    "device": {"precision": "fp32", "compile": "off"},
}

RECIPE = Recipe(
    name="tinystories",
    summary=summary(__doc__),
    experiment=EXPERIMENT,
    task=task,
    low_resource=LOW_RESOURCE,
    quick_test=QUICK_TEST,
)
