"""The text a recipe trains on: a person's, by the recipe's tokenizer, or the embedded one in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from batchlab.core.experiment import DataConfig
from batchlab.data.source import TextPair, open_text_pair


def open_text(config: DataConfig, cache_dir: Path, published: str) -> TextPair:
    """Token ids as `config` says. Without a path: the embedded text as bytes, described as in place of `published`.

    Bytes need no package and no file, so every recipe runs everywhere; the number of the model's rows stays.
    """
    if config.path is not None:
        return open_text_pair(config, cache_dir)
    text = open_text_pair(config.model_copy(update={"tokenizer": "bytes"}), cache_dir)
    return replace(text, description=f"{text.description}; read as bytes, in place of {published}")
