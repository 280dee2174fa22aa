"""The text a recipe trains on: the user's text with the recipe's tokenizer, or the embedded text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from batchlab.core.experiment import DataConfig
from batchlab.data.source import TextPair, open_text_pair


def open_text(config: DataConfig, cache_dir: Path, published: str) -> TextPair:
    """Token ids according to `config`. Without a path, the embedded text as bytes, described as replacing `published`.

    Bytes need neither a package nor a file, so every recipe runs on every machine. The model keeps its vocabulary size.
    """
    if config.path is not None:
        return open_text_pair(config, cache_dir)
    text = open_text_pair(config.model_copy(update={"tokenizer": "bytes"}), cache_dir)
    return replace(text, description=f"{text.description}, as bytes, instead of {published}")
