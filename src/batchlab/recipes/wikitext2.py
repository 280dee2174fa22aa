"""162M-parameter post-norm decoder, batch 12 and 20 × five LRs from 1e-5 to 1e-3, five epochs, constant LR.

As published, on WikiText-2: AdamW without weight decay at a constant learning rate, bfloat16 autocast, dropout 0.1,
seed 42. An open question of the original is whether Adam's moments cause the sudden drop in the loss. To test it, run
the same study with another optimizer: `--set optimizer.name=sgd --learning-rates 0.01:1 --out studies/wikitext2-sgd`.
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

MODEL = {"d_model": 768, "layers": 12, "heads": 8, "dropout": 0.1}
"""162,304,084 parameters at a vocabulary of 50,260: GPT-2's 50,257 tokens and three special ones."""


def task(workload: Workload, cache_dir: Path) -> Task:
    """The decoder of `workload.model` on the text or token ids of `workload.data`; cross-entropy in nats per token."""
    decoder = models(workload.framework).PostNormDecoder
    settings = model_settings(workload.model, MODEL)
    require_heads(settings, even=False)

    def model(vocabulary: int) -> Any:
        return decoder(vocabulary=vocabulary, sequence_length=workload.sequence_length, **settings)

    return next_token_task(model, workload, cache_dir, "WikiText-2")


EXPERIMENT = {
    "unit": "tokens",
    "sequence_length": 1024,
    "model": MODEL,
    "data": {"tokenizer": "gpt2", "vocabulary": 50_260},  # a folder with GPT-2's vocab.json and merges.txt
    "batch": {"global_batch_sizes": (12, 20)},
    "optimizer": {
        "name": "adamw",
        "beta1": 0.9,
        "beta2": 0.999,
        "weight_decay": 0.0,
        "grad_clip": "off",
        "across_batch": "fixed",
    },
    "schedule": {"kind": "constant", "warmup_fraction": 0.0},
    "sweep": {
        "search": "grid",
        "learning_rates": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3),
        "max_extensions": 0,
        "seeds": 1,
        "first_seed": 42,
    },
    "budget": {"epochs": 5.0},
    "evaluation": {"points": 20, "samples": 128},
    "diagnostics": "full",
    "device": {"precision": "bf16"},
}

LOW_RESOURCE = {
    "sequence_length": 256,
    "model": {"d_model": 256, "layers": 4},
    "budget": {"epochs": None, "token_budget": 40_000_000},
    "device": {"precision": "fp32"},
}

QUICK_TEST = {
    "sequence_length": 64,
    "model": {"d_model": 64, "layers": 3, "heads": 4},
    "data": {"tokenizer": "bytes", "vocabulary": 256},
    "sweep": {"search": "grid", "learning_rates": (1e-3, 3e-3, 1e-2)},
    "budget": {"epochs": None, "token_budget": 192_000},  # 250 steps of batch 12, 150 of batch 20
    "evaluation": {"points": 10, "samples": 256},
    "device": {"precision": "fp32"},
}

RECIPE = Recipe(
    name="wikitext2",
    summary=summary(__doc__),
    experiment=EXPERIMENT,
    task=task,
    model="PostNormDecoder",
    low_resource=LOW_RESOURCE,
    quick_test=QUICK_TEST,
)
