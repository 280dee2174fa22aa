"""The worker's protocol, spoken through pipes as any engine does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchlab.core.record import Outcome
from batchlab.core.spec import CapacitySpec, Spec, TrainSpec
from batchlab.core.worker import STOP
from batchlab.storage.run_folder import RunFolder

pytestmark = pytest.mark.slow

TOY = str(Path(__file__).with_name("toy_worker.py"))


class Talk:
    """A worker and what it said."""

    def __init__(self, study: Path, *more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, TOY, "--study", str(study), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def say(self, spec: Spec, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"spec": spec.model_dump(mode="json"), **more}) + "\n")
        self.process.stdin.flush()

    def hear(self, *skip: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, "the worker's output ended"
            event: dict[str, Any] = json.loads(line)
            if event["event"] not in skip:
                return event

    def end(self) -> list[str]:
        """Names of the remaining events after the end of input."""
        output, _ = self.process.communicate(timeout=60)
        return [json.loads(line)["event"] for line in output.splitlines()]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Talk]:
    talk = Talk(tmp_path)
    yield talk
    talk.process.kill()
    talk.process.communicate()


def test_specs_in_events_out(worker: Talk, toy_train: Callable[..., TrainSpec], tmp_path: Path) -> None:
    assert worker.hear() == {"event": "ready"}
    worker.say(toy_train(), attempt=3)
    first = worker.hear()
    assert (first["event"], first["steps"], first["run_id"]) == (
        "progress",
        40,
        RunFolder(tmp_path, toy_train()).run_id,
    )
    assert worker.hear("progress") == {"event": "finished", "run_id": first["run_id"]}
    record = RunFolder(tmp_path, toy_train()).record()
    assert record is not None
    assert (record.attempts, record.outcome) == (3, Outcome.COMPLETED)
    worker.say(toy_train())
    assert worker.hear() == {"event": "finished", "run_id": first["run_id"]}
    assert worker.end() == []
    assert worker.process.returncode == 0


def test_the_end_of_input_means_finish_what_was_asked(
    worker: Talk, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    for seed in range(3):
        worker.say(toy_train(seed=seed))
    said = worker.end()
    assert said.count("finished") == 3
    assert all(RunFolder(tmp_path, toy_train(seed=seed)).record() for seed in range(3))


def test_a_run_in_other_hands_is_left_alone(worker: Talk, toy_train: Callable[..., TrainSpec], tmp_path: Path) -> None:
    mine = RunFolder(tmp_path, toy_train())
    assert mine.try_lock()
    worker.say(toy_train())
    assert worker.hear("ready")["event"] == "busy"
    assert not (mine.path / "spec.json").exists()
    mine.unlock()
    worker.say(toy_train())
    assert worker.hear("progress")["event"] == "finished"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_a_training_run_saves_itself(
    worker: Talk, toy_train: Callable[..., TrainSpec], tmp_path: Path, number: int
) -> None:
    spec = toy_train(sleep=0.05, checkpoint_every=1000)
    worker.say(spec)
    assert worker.hear("ready")["event"] == "progress"
    worker.process.send_signal(number)
    assert worker.hear("progress")["event"] == "interrupted"
    assert worker.process.wait(60) == 0
    run = RunFolder(tmp_path, spec)
    assert run.try_lock()
    saved = run.load_checkpoint()
    run.unlock()
    assert saved is not None
    assert saved[0]["step"] >= 1
    assert run.record() is None


def test_asked_to_stop_a_measurement_ends_at_once(
    worker: Talk, toy_capacity: Callable[..., CapacitySpec], tmp_path: Path
) -> None:
    spec = toy_capacity(sleep=300)
    worker.say(spec)
    run = RunFolder(tmp_path, spec)
    while not (tmp_path / "cache" / "starts.jsonl").exists():
        time.sleep(0.02)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.hear("ready")["event"] == "interrupted"
    assert worker.process.wait(60) == 0
    assert run.record() is None


def test_asked_twice_it_ends(worker: Talk, toy_train: Callable[..., TrainSpec], tmp_path: Path) -> None:
    worker.say(toy_train(sleep=30))
    while not (tmp_path / "cache" / "starts.jsonl").exists():
        time.sleep(0.02)
    for _ in range(200):
        worker.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        if worker.process.poll() is not None:
            break
    assert worker.process.returncode == -signal.SIGTERM


def test_an_idle_worker_asked_to_stop_leaves(worker: Talk) -> None:
    worker.hear()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(60) == 0


PARENT = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, sys.argv[1], "--study", sys.argv[2]], stdin=subprocess.PIPE,
                          start_new_session=True, bufsize=0)
worker.stdin.write(sys.argv[3].encode() + b"\\n")
print(worker.pid, flush=True)
worker.wait()
"""


def test_it_dies_with_its_parent(toy_train: Callable[..., TrainSpec], tmp_path: Path) -> None:
    spec = toy_train(hang=True)
    command = json.dumps({"spec": spec.model_dump(mode="json")})
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, TOY, str(tmp_path), command], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    run = RunFolder(tmp_path, spec)
    deadline = time.monotonic() + 60
    while "about to hang" not in run.log_tail():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert run.locked_by_another()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while run.locked_by_another():
        assert time.monotonic() < deadline, "the orphan still holds its run"
        time.sleep(0.02)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert run.record() is None


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Talk]:
    """A worker behind a launcher."""
    talk = Talk(tmp_path, "--launched-in", str(tmp_path))
    yield talk
    talk.process.kill()
    talk.process.communicate()


def test_a_launched_worker_takes_a_line_for_a_signal(
    launched: Talk, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    launched.hear()
    launched.say(toy_train(sleep=0.1))
    assert launched.hear()["event"] == "progress"
    assert launched.process.stdin is not None
    launched.process.stdin.write(STOP.decode())
    launched.process.stdin.flush()
    assert launched.hear("progress")["event"] == "interrupted"
    assert RunFolder(tmp_path, toy_train(sleep=0.1)).record() is None


def test_a_launched_worker_ends_with_its_engine_though_its_launcher_lives(
    launched: Talk, toy_train: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    launched.hear()
    launched.say(toy_train(sleep=10.0))
    launched.hear()
    assert launched.process.stdin is not None
    launched.process.stdin.close()
    launched.process.stdin = None
    assert launched.process.wait(timeout=9) != 0
    assert RunFolder(tmp_path, toy_train(sleep=10.0)).try_lock(), "and so does its lock"


def test_a_launched_worker_says_that_it_is_alive(launched: Talk, toy_train: Callable[..., TrainSpec]) -> None:
    launched.hear()
    assert launched.hear() == {"event": "alive"}
