"""Weights & Biases, offline: written by the tracker, read by the package's own record format.

The package has no reader in Python: its files are LevelDB logs (blocks of 32 KiB; checksum, length and kind before each
part) of the protocol buffers that it brings.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb", reason="the wandb package is not installed")

from wandb.proto import wandb_internal_pb2

from batchlab.testing import check_tracker
from batchlab.trackers.wandb import WandbTracker


def records(file: Path) -> Iterator[Any]:
    content, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]
            record.ParseFromString(parts)
            parts = b""
            yield record


def logged(file: Path, name: str) -> list[tuple[int, float]]:
    found = []
    for record in records(file):
        if record.WhichOneof("record_type") == "history":
            values = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            if name in values:
                found.append((record.history.step.num, json.loads(values[name])))
    return found


@pytest.mark.slow  # each run has a process of wandb's own
def test_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))

    def file_of(run: str) -> Path:
        (folder,) = (tmp_path / "study" / "wandb").glob(f"offline-run-*-s-{run}")
        return folder / f"run-s-{run}.wandb"

    check_tracker(lambda: WandbTracker(tmp_path / "study", "s"), lambda run: logged(file_of(run), "val_loss"))
    found = list(records(file_of("run-b")))
    (begun,) = [record.run for record in found if record.WhichOneof("record_type") == "run"][:1]
    assert begun.display_name == "run-b"
    assert {(item.key, item.value_json) for item in begun.config.update} >= {("global_batch_size", "16")}
    summaries = [item for r in records(file_of("run-a")) for item in r.summary.update]
    assert any(item.key == "result/outcome" and item.value_json == '"diverged"' for item in summaries)
    assert logged(file_of("run-b"), "diagnostics/update/layer")[0] == (10, 0.5)
