"""A Trainer's checkpoint folder as one stream of bytes, and back."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any, BinaryIO, cast

from batchlab.core.protocols import ByteSink, WriteState


def writer(folder: Path) -> WriteState:
    """Writes a checkpoint folder as an uncompressed tar."""

    def write(sink: ByteSink) -> None:
        with tarfile.open(fileobj=cast(Any, sink), mode="w|") as archive:
            archive.add(folder, arcname="checkpoint")

    return write


def restore(state: BinaryIO, folder: Path) -> Path:
    """Unpack into `folder`; returns the checkpoint folder. Members that would leave `folder` are refused."""
    with tarfile.open(fileobj=state, mode="r|") as archive:
        archive.extractall(folder, filter="data")
    return folder / "checkpoint"
