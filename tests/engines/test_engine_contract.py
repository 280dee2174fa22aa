"""What every engine does, wherever it executes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from batchlab.core.errors import StorageFailed
from batchlab.core.protocols import Engine, Event, Finished, Progress, Waiting
from batchlab.core.record import Outcome, Record, TrainResult
from batchlab.core.spec import CapacitySpec, TrainSpec, run_id
from batchlab.storage.run_folder import RunFolder, read_spec
from batchlab.testing import check_engine

CarryOut = Callable[..., list[Record]]
Build = Callable[[], Engine]


def test_a_run_leaves_its_record_and_its_events(
    any_engine: Build, carry_out: CarryOut, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    spec, events = toy_train(), list[Event]()
    [record] = carry_out(any_engine(), spec, events=events)
    assert record.outcome is Outcome.COMPLETED
    assert record.run_id == run_id(spec)
    assert record.pairing == "verified"
    assert record.environment is not None
    assert record.environment.platform == "toy"
    assert RunFolder(tmp_path, spec).record() == record
    assert read_spec(tmp_path / "runs" / record.run_id) == spec
    assert not (tmp_path / "runs" / record.run_id / "checkpoint").exists()
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert (last.run_id, last.step, last.steps, last.tokens) == (record.run_id, 40, 40, 1280)
    assert isinstance(events[-1], Finished)
    assert events[-1].spec == spec


def test_it_keeps_the_public_contract(any_engine: Build, toy_train: Callable[..., TrainSpec]) -> None:
    check_engine(any_engine, [toy_train(seed=seed) for seed in range(3)])


def test_what_is_finished_is_not_repeated(
    any_engine: Build, carry_out: CarryOut, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    specs = [toy_train(seed=seed) for seed in range(3)]
    first = carry_out(any_engine(), *specs)
    assert carry_out(any_engine(), *specs) == first
    assert len((tmp_path / "cache" / "starts.jsonl").read_text().splitlines()) == 3


def test_the_same_spec_twice_runs_once_and_is_answered_twice(
    any_engine: Build, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    engine = any_engine()
    for _ in range(2):
        engine.submit(toy_train())
    finished: list[Finished] = []
    for _ in range(60):
        finished += [event for event in engine.wait(1.0) if isinstance(event, Finished)]
        if len(finished) == 2:
            break
    assert finished[0] == finished[1]
    assert len((tmp_path / "cache" / "starts.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("how", "outcome", "reason"),
    [
        ({"raise": "a wrong shape"}, Outcome.FAILED, r"ValueError: a wrong shape \(line \d+ of toy_worker.py\)"),
        ({"input_error": "No such file."}, Outcome.FAILED, r"No such file\."),
        ({"exit": True}, Outcome.FAILED, r"SystemExit: 3 \(line \d+ of toy_worker.py\)"),
        ({"out_of_memory": True}, Outcome.OUT_OF_MEMORY, "no more"),
        ({"memory_error": True}, Outcome.OUT_OF_MEMORY, "Out of memory."),
        ({"raise": "CUDA error: out of memory"}, Outcome.OUT_OF_MEMORY, "CUDA error: out of memory"),
    ],
)
def test_whatever_the_persons_code_does_is_an_outcome(
    any_engine: Build,
    carry_out: CarryOut,
    toy_train: Callable[..., TrainSpec],
    how: dict[str, object],
    outcome: Outcome,
    reason: str,
) -> None:
    bad, good = toy_train(**how), toy_train()
    records = carry_out(any_engine(), bad, good)
    assert records[0].outcome is outcome
    assert re.fullmatch(reason, records[0].reason), records[0].reason
    assert records[1].outcome is Outcome.COMPLETED


def test_a_traceback_is_in_the_log(
    any_engine: Build, carry_out: CarryOut, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    [record] = carry_out(any_engine(), toy_train(**{"raise": "a wrong shape"}))
    log = (tmp_path / "runs" / record.run_id / "log.txt").read_text()
    assert "Traceback" in log
    assert "ValueError: a wrong shape" in log


def test_a_probe_out_of_memory_says_that_the_size_does_not_fit(
    any_engine: Build, carry_out: CarryOut, toy_capacity: Callable[..., CapacitySpec]
) -> None:
    [record] = carry_out(any_engine(), toy_capacity(micro=64, out_of_memory=True), exclusive=True)
    assert record.outcome is Outcome.OUT_OF_MEMORY
    assert record.result is not None
    assert (record.result.kind, getattr(record.result, "fits", None)) == ("capacity", False)


def test_a_full_disk_ends_the_study_not_the_run(
    any_engine: Build, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    engine, spec = any_engine(), toy_train(full_disk=True)
    engine.submit(spec)
    with pytest.raises(StorageFailed, match="is full; finished runs are kept"):
        engine.wait(60.0)
    engine.close()
    assert RunFolder(tmp_path, spec).record() is None
    assert not RunFolder(tmp_path, spec).locked_by_another()


def test_a_run_that_another_process_has_is_waited_for(
    any_engine: Build, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    engine, spec = any_engine(), toy_train()
    other = RunFolder(tmp_path, spec)
    assert other.try_lock()
    engine.submit(spec)
    assert all(isinstance(event, Waiting) for event in engine.wait(0.8))
    record = Record(run_id=other.run_id, outcome=Outcome.DIVERGED, reason="by the other")
    other.begin().finish(record)
    other.unlock()
    events = [event for _ in range(20) for event in engine.wait(1.0)]
    finished = [event for event in events if not isinstance(event, Waiting)]
    assert finished == [Finished(spec, record)]


def test_a_run_that_another_process_gave_up_is_taken_over(
    any_engine: Build, carry_out: CarryOut, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    engine, spec = any_engine(), toy_train()
    other = RunFolder(tmp_path, spec)
    assert other.try_lock()
    other.begin().save_checkpoint({"step": 40, "resumed": 0}, lambda sink: sink.write(b"1.25"))
    engine.submit(spec)
    assert all(isinstance(event, Waiting) for event in engine.wait(0.8))
    other.unlock()
    [record] = carry_out(engine, spec)
    assert isinstance(record.result, TrainResult)
    assert (record.result.val_loss, record.result.resumed) == (1.25, 1)


def test_nothing_to_do_is_said_at_once_and_closing_twice_is_harmless(any_engine: Build) -> None:
    engine = any_engine()
    assert engine.wait(600.0) == []
    engine.close()
    engine.close()
