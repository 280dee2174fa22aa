"""TensorBoard: written by the tracker, read by tensorboard's own reader."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from batchlab.testing import check_tracker

pytest.importorskip("tensorboard", reason="the tensorboard package is not installed")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from batchlab.cli.app import run
from batchlab.storage.store import Store
from batchlab.trackers.tensorboard import TensorBoardTracker

SMALL = ("--batch-sizes", "4,8", "--learning-rates", "0.1,0.2", "--set", "sweep.max_extensions=0")


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_contract(tmp_path: Path) -> None:
    def read_back(name: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in read(tmp_path / "tensorboard" / name).Scalars("val_loss")]

    check_tracker(lambda: TensorBoardTracker(tmp_path, "study"), read_back)
    found = read(tmp_path / "tensorboard" / "run-a")
    assert found.Scalars("diagnostics/update/layer")[0].value == 0.5
    assert found.Tensors("outcome")[0].tensor_proto.string_val[0] == b"diverged. as the contract says"
    settings = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"global_batch_size" in settings


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return tmp_path / "s"


def assert_as_in(store: Store) -> None:
    trained = [(spec, record) for spec, record in store.records() if spec.kind == "train"]
    assert trained
    for _, record in trained:
        found = read(store.path / "tensorboard" / record.run_id)
        expected = {row.step: row.val_loss for row in store.rows(record.run_id) if row.val_loss is not None}
        assert {event.step: event.value for event in found.Scalars("val_loss")} == pytest.approx(expected)
        assert len(found.Scalars("val_loss")) == len(expected)
        assert found.Scalars("result/steps")[0].value == record.result.steps  # type: ignore[union-attr]


@pytest.mark.slow
def test_live_and_replayed_are_the_same(study: Path) -> None:
    command = ["study", "simulated", "--out", str(study), "--token-budget", "3200", "--seeds", "1", *SMALL, "--json"]
    assert run([*command, "--track", "tensorboard"]) == 0
    assert_as_in(Store.open(study))
    assert run(["mirror", str(study), "--to", "tensorboard"]) == 0
    assert_as_in(Store.open(study))
    assert "torch.utils.tensorboard" not in sys.modules
    assert "tensorflow" not in sys.modules
