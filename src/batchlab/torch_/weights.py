"""The weights of a finished run as safetensors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors.torch import save_file


def write_weights(state: BinaryIO, path: Path) -> None:
    """Write the model's part of `TorchTrainable.state()` to `path`, as a whole or not at all.

    A tensor under two names, as tied weights are, is written twice: the format knows no sharing.
    """
    model = torch.load(state, map_location="cpu", weights_only=True)["model"]
    unfinished = path.with_name(f".{path.name}.unfinished")
    save_file({name: value.clone().contiguous() for name, value in model.items()}, unfinished, {"format": "pt"})
    os.replace(unfinished, path)
