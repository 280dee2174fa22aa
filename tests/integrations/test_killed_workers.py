"""A worker that trains with the real Trainer is killed, and another one goes on. Only in `make test-integrations`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integrations.doors import Door, open_door

from batchlab.core.experiment import build_experiment
from batchlab.core.protocols import RunResult
from batchlab.core.record import Outcome, TrainResult
from batchlab.core.spec import TrainSpec, run_id
from batchlab.storage.store import Store
from batchlab.testing.integration import Recorder

pytestmark = pytest.mark.integration
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Door:
    return open_door("hf", "ft.py", "make_trainer", tmp_path_factory.mktemp("killed"))


def start(study: Path, spec: TrainSpec) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "batchlab.engines.worker", "--study", str(study)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert worker.stdin is not None
    worker.stdin.write(json.dumps({"spec": spec.model_dump(mode="json"), "attempt": 1}).encode() + b"\n")
    worker.stdin.flush()
    return worker


def test_a_killed_run_goes_on_from_its_checkpoint_to_the_same_bits(door: Door, tmp_path: Path) -> None:
    spec = door.train_spec(8, 8, 800, checkpoint_seconds=0.0)
    expected: RunResult = door.run(spec, Recorder(tmp_path / "whole"))
    study = tmp_path / "study"
    experiment = build_experiment({"name": "killed", "task": spec.workload.task.model_dump()})
    store = Store.create(study, experiment)
    kept = study / "runs" / run_id(spec) / "checkpoint" / "state"
    worker = start(study, spec)
    try:
        limit = time.monotonic() + 600
        while not kept.exists():
            assert worker.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < limit, "no checkpoint was written"
            time.sleep(0.02)
        assert not (kept.parent.parent / "record.json").exists()
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    worker = start(study, spec)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(timeout=600) == 0
    ((_, record),) = store.records()
    assert record.outcome is Outcome.COMPLETED, record.reason
    assert isinstance(record.result, TrainResult)
    assert isinstance(expected.result, TrainResult)
    assert record.result.resumed == 1
    assert record.result.val_curve == expected.result.val_curve
    assert record.result.final_train_loss == expected.result.final_train_loss
    assert record.pairing is expected.pairing


def test_how_often_a_run_is_saved_does_not_change_its_final_training_loss(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else saving never takes more than that share of a run's time.
    monkeypatch.setattr("batchlab.integrations.hf.train.SAVING_SHARE", 1.0)
    losses = []
    for seconds in (0.0, 1e9):
        spec = door.train_spec(8, 8, 800, checkpoint_seconds=seconds)
        result = door.run(spec, Recorder(tmp_path / f"{seconds}")).result
        assert isinstance(result, TrainResult)
        losses.append(result.final_train_loss)
    assert losses[0] == losses[1]
