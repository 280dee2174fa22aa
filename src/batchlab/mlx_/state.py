"""A training state as one safetensors file: arrays by name, and the random state as text. Nothing is executed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

FORMAT = "batchlab mlx 1"


def write(arrays: Mapping[str, mx.array], random: Mapping[str, Any]) -> bytes:
    """The bytes that `read` takes."""
    file = io.BytesIO()
    mx.save_safetensors(file, dict(arrays), {"format": FORMAT, "random": json.dumps(random)})
    return file.getvalue()


def read(content: bytes) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """(arrays, random state). Raises ValueError for other bytes, also for a file that was cut off."""
    header = _header(content)
    metadata = header.get("__metadata__", {})
    if metadata.get("format") != FORMAT:
        raise ValueError("these bytes are not the state of an MLX task")
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if len(content) != 8 + int.from_bytes(content[:8], "little") + max(ends, default=0):
        raise ValueError("this state of an MLX task was cut off")
    arrays: Any = mx.load(io.BytesIO(content), format="safetensors")
    mx.eval(arrays)  # read while the bytes are there
    return arrays, json.loads(metadata["random"])


def _header(content: bytes) -> dict[str, Any]:
    """Of a safetensors file: its length in 8 bytes, then JSON (github.com/huggingface/safetensors#format)."""
    length = int.from_bytes(content[:8], "little")
    if not 0 < length <= len(content) - 8:
        raise ValueError("these bytes are not the state of an MLX task")
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    return header
