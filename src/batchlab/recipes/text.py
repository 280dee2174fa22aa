"""What the recipes that predict the next token share: the text they train on, and the task made of it and a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchlab.core.experiment import DataConfig
from batchlab.core.frameworks import models
from batchlab.core.spec import Workload
from batchlab.core.task import Task
from batchlab.data.source import TextPair, open_text_pair


def next_token_task(model: Callable[[int], Any], workload: Workload, cache_dir: Path, published: str = "") -> Task:
    """A task on the text or token ids of `workload.data`; cross-entropy in nats per token.

    `model` builds the model for a vocabulary size; `published` names the text that the recipe was published with.
    """
    text = open_text(workload.data, cache_dir, published)
    return Task(
        model=lambda: model(text.vocabulary),
        loss=models(workload.framework).next_token_loss,
        train=text.train,
        valid=text.valid,
        sequence_length=workload.sequence_length,
        framework=workload.framework,
        source=text.description,
    )


def open_text(config: DataConfig, cache_dir: Path, published: str) -> TextPair:
    """Token ids according to `config`. Without a path, the embedded text as bytes, described as replacing `published`.

    Bytes need neither a package nor a file, so every recipe runs on every machine. The model keeps its vocabulary size.
    """
    if config.path is not None or not published:
        return open_text_pair(config, cache_dir)
    text = open_text_pair(config.model_copy(update={"tokenizer": "bytes"}), cache_dir)
    return replace(text, description=f"{text.description}, as bytes, instead of {published}")
