"""Worker processes: shared or fresh, alone or together, and every way they can end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.fast_clock import FastClock

from batchlab.core.errors import WorkerLost
from batchlab.core.protocols import Progress
from batchlab.core.record import Outcome, Record, TrainResult
from batchlab.core.spec import CapacitySpec, TrainSpec
from batchlab.core.worker import WorkerCommand
from batchlab.engines.local import LocalEngine
from batchlab.storage.metrics import read_rows
from batchlab.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

CarryOut = Callable[..., list[Record]]
Train = Callable[..., TrainSpec]
Capacity = Callable[..., CapacitySpec]
Build = Callable[..., LocalEngine]
Starts = Callable[[], list[dict[str, Any]]]


def pids(starts: Starts) -> list[int]:
    return [start["pid"] for start in starts()]


def undisturbed(spec: TrainSpec) -> float:
    value = 1.0
    for step in range(1, spec.steps + 1):
        value = (value * 1.7 + spec.learning_rate * step + spec.seed) % 3.1
    return value


def wait_until(happened: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_training_runs_of_equal_settings_share_a_process(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    carry_out(local_engine(workers=1), *[toy_train(seed=seed) for seed in range(4)])
    assert len(set(pids(starts))) == 1


def test_a_shared_process_is_replaced_after_so_many_runs(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    carry_out(local_engine(workers=1, runs_per_worker=2), *[toy_train(seed=seed) for seed in range(4)])
    assert [pids(starts).count(pid) for pid in dict.fromkeys(pids(starts))] == [2, 2]


def test_other_threads_mean_another_process_with_that_many_threads(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    carry_out(local_engine(workers=1), toy_train(threads=1), toy_train(threads=3))
    assert len(set(pids(starts))) == 2
    assert [start["environment"]["OMP_NUM_THREADS"] for start in starts()] == ["1", "3"]


def test_a_failed_run_costs_the_process(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    engine = local_engine(workers=1)
    carry_out(engine, toy_train(**{"raise": "x"}))
    carry_out(engine, toy_train(**{"raise": "x"}, seed=1))
    assert len(set(pids(starts))) == 2


def test_two_workers_train_at_once_unless_their_threads_exceed_the_cores(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    carry_out(local_engine(workers=2, cores=4), *[toy_train(seed=s, threads=2, sleep=0.02) for s in range(4)])
    assert len(set(pids(starts))) == 2
    before = len(pids(starts))
    carry_out(local_engine(workers=2, cores=3), *[toy_train(seed=s, threads=2, sleep=0.01) for s in range(4)])
    assert len(set(pids(starts)[before:])) == 1


def test_exclusive_runs_have_a_fresh_process_and_nothing_beside_them(
    local_engine: Build, toy_train: Train, toy_capacity: Capacity, carry_out: CarryOut, starts: Starts
) -> None:
    engine = local_engine(workers=3)
    trains = [toy_train(seed=seed, sleep=0.01) for seed in range(3)]
    probes = [toy_capacity(micro=micro, sleep=0.3) for micro in (1, 2)]
    for spec in trains:
        engine.submit(spec)
    carry_out(engine, *probes, exclusive=True)
    carry_out(engine, *trains, toy_train(seed=9))
    order = starts()
    assert [start["kind"] for start in order] == ["train"] * 3 + ["capacity"] * 2 + ["train"]
    capacity = [start for start in order if start["kind"] == "capacity"]
    assert capacity[1]["time"] - capacity[0]["time"] >= 0.3
    assert order[-1]["time"] - capacity[1]["time"] >= 0.3
    assert len({start["pid"] for start in capacity}) == 2


def test_cuda_runs_are_spread_over_the_visible_devices(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, starts: Starts
) -> None:
    engine = local_engine(workers=2, devices=("1", "3"))
    carry_out(engine, *[toy_capacity(micro=micro, name="cuda", sleep=0.5) for micro in (1, 2)])
    assert {start["environment"]["CUDA_VISIBLE_DEVICES"] for start in starts()} == {"1", "3"}


def test_runs_on_a_card_that_was_named_stay_there(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    engine = local_engine(workers=2, devices=("0", "1"))
    carry_out(engine, *[toy_capacity(micro=micro, name="cuda:0", sleep=0.5) for micro in (1, 2)])
    assert [start["environment"].get("CUDA_VISIBLE_DEVICES") for start in starts()] == [None, None]


def test_a_killed_run_is_tried_again_and_ends_the_study_when_that_happens_again_and_again(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, toy_capacity: Capacity, tmp_path: Path
) -> None:
    engine = local_engine(clock=FastClock())
    [once] = carry_out(engine, toy_capacity(micro=1, die="SIGKILL", die_times=1), exclusive=True)
    assert (once.outcome, once.attempts) == (Outcome.COMPLETED, 2)
    (tmp_path / "cache" / "deaths").unlink()
    always = toy_capacity(micro=2, die="SIGKILL")
    with pytest.raises(WorkerLost, match=r"SIGKILL.*4 times.*run the same command again"):
        carry_out(engine, always, exclusive=True)
    engine.close()
    assert RunFolder(tmp_path, always).record() is None
    assert carry_out(local_engine(), toy_train(seed=1))[0].outcome is Outcome.COMPLETED


def test_a_probe_that_leaves_by_itself_has_failed(
    local_engine: Build, carry_out: CarryOut, toy_capacity: Capacity, tmp_path: Path
) -> None:
    [record] = carry_out(local_engine(), toy_capacity(die="exit"), exclusive=True)
    assert record.outcome is Outcome.FAILED
    assert record.reason == "Its process ended with exit code 7. Last output: dying at step 0"
    assert (tmp_path / "cache" / "deaths").read_text() == "x"


@pytest.mark.parametrize("die", ["SIGKILL", "SIGSEGV", "exit"])
def test_a_training_run_goes_on_from_its_checkpoint_after_its_process_died(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, tmp_path: Path, die: str
) -> None:
    spec = toy_train(die=die, die_at=23, die_times=2)
    [record] = carry_out(local_engine(workers=1, clock=FastClock()), spec)
    assert isinstance(record.result, TrainResult), record.reason
    assert record.result.val_loss == undisturbed(spec)
    assert (record.attempts, record.result.resumed) == (3, 1)  # both times from the checkpoint of step 20
    rows, unreadable = read_rows(tmp_path / "runs" / record.run_id / "metrics.jsonl")
    assert ([row.step for row in rows], unreadable) == (list(range(1, 41)), 0)


def test_a_training_run_whose_process_always_dies_has_failed_and_others_go_on(
    local_engine: Build, carry_out: CarryOut, toy_train: Train
) -> None:
    bad, good = carry_out(local_engine(workers=1), toy_train(die="SIGSEGV", die_at=7), toy_train(seed=1))
    assert bad.outcome is Outcome.FAILED
    assert bad.attempts == 3
    assert "by SIGSEGV, 3 times. Fatal Python error: Segmentation fault" in bad.reason
    assert good.outcome is Outcome.COMPLETED


def test_out_of_memory_in_a_used_process_is_tried_again_in_a_fresh_one(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    # The first run trains in the process that the second meets used; equal workloads share one.
    specs = [toy_train(seed=seed, out_of_memory_if_reused=True) for seed in range(2)]
    records = carry_out(local_engine(workers=1), *specs)
    assert [record.outcome for record in records] == [Outcome.COMPLETED] * 2
    assert [start["seed"] for start in starts()] == [0, 1, 1]
    assert len(set(pids(starts))) == 2


def test_what_a_task_prints_disturbs_nothing_and_is_logged(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, tmp_path: Path
) -> None:
    [record] = carry_out(local_engine(), toy_train(chatter=True))
    assert record.outcome is Outcome.COMPLETED, record.reason
    log = (tmp_path / "runs" / record.run_id / "log.txt").read_text()
    assert all(text in log for text in ("forged", "raw noise", "from a child", "to stderr"))


def test_a_silent_run_is_ended_and_failed(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    hanging, good = carry_out(local_engine(workers=1, silence_seconds=6.0), toy_train(hang=True), toy_train(seed=1))
    assert hanging.outcome is Outcome.FAILED
    assert hanging.reason == (
        "It gave no sign of life for 6 seconds (device.silence_seconds) and was ended. Last output: about to hang"
    )
    assert good.outcome is Outcome.COMPLETED
    assert gone(pids(starts)[0])


def test_closing_saves_what_runs_and_the_next_engine_goes_on(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, tmp_path: Path, starts: Starts
) -> None:
    spec = toy_train(sleep=0.05, checkpoint_every=1000)
    engine = local_engine()
    engine.submit(spec)
    seen: list[Any] = []

    def is_under_way() -> bool:
        seen.extend(engine.wait(0.5))
        return any(isinstance(e, Progress) and e.step > 3 for e in seen)

    wait_until(is_under_way, "")
    engine.close()
    assert gone(pids(starts)[0])
    run = RunFolder(tmp_path, spec)
    assert run.record() is None
    assert (run.path / "checkpoint" / "state").exists()
    [record] = carry_out(local_engine(), spec)
    assert isinstance(record.result, TrainResult)
    assert (record.result.resumed, record.result.val_loss) == (1, undisturbed(spec))


def test_closing_leaves_no_process_even_of_a_task_that_ignores_it_or_forks(
    local_engine: Build, toy_train: Train, tmp_path: Path, starts: Starts
) -> None:
    engine = local_engine(workers=2, grace_seconds=1.0)
    engine.submit(toy_train(hang=True))
    engine.submit(toy_train(fork=True, sleep=0.05))
    child = tmp_path / "cache" / "child.pid"
    wait_until(lambda: child.exists() and child.read_text() and len(pids(starts)) == 2, "both runs begin")
    engine.close()
    assert all(gone(pid) for pid in [*pids(starts), int(child.read_text())])


def test_what_a_run_started_ends_with_its_process(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, tmp_path: Path
) -> None:
    carry_out(local_engine(workers=1, runs_per_worker=1), toy_train(fork=True))
    child = int((tmp_path / "cache" / "child.pid").read_text())
    wait_until(lambda: gone(child), "the forked child ends")


def test_somebody_elses_sigterm_only_moves_the_run(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    engine, spec = local_engine(), toy_train(sleep=0.03)
    engine.submit(spec)
    seen: list[Any] = []

    def is_under_way() -> bool:
        seen.extend(engine.wait(0.5))
        return any(isinstance(e, Progress) and e.step > 3 for e in seen)

    wait_until(is_under_way, "")
    os.kill(pids(starts)[0], signal.SIGTERM)
    [record] = carry_out(engine, spec)
    assert isinstance(record.result, TrainResult)
    assert (record.result.resumed, record.result.val_loss) == (1, undisturbed(spec))
    assert len(set(pids(starts))) == 2


def test_two_engines_on_one_study_share_the_runs(
    local_engine: Build, carry_out: CarryOut, toy_train: Train, starts: Starts
) -> None:
    one, two = local_engine(workers=1), local_engine(workers=1)
    specs = [toy_train(seed=seed, sleep=0.01) for seed in range(6)]
    for spec in specs:
        one.submit(spec)
    records = carry_out(two, *specs)
    assert carry_out(one, *specs) == records
    assert sorted(start["seed"] for start in starts()) == list(range(6))


def test_a_worker_that_cannot_start_says_why(tmp_path: Path, carry_out: CarryOut, toy_train: Train) -> None:
    broken = WorkerCommand((sys.executable, "-c", "raise SystemExit('no batchlab here')"))
    engine = LocalEngine(tmp_path, 1, command=broken, clock=FastClock())
    try:
        with pytest.raises(WorkerLost, match=r"could not be started: .*exit code 1, 4 times.*no batchlab here"):
            carry_out(engine, toy_train())
    finally:
        engine.close()
