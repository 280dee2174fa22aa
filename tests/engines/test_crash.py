"""Why a worker process died: from its exit code, and from what its log shows of native code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.record import Outcome
from batchlab.core.spec import CapacitySpec, DeviceSettings, Spec, ThroughputSpec, TrainSpec, Workload
from batchlab.engines.crash import Death, failure_of_silence, fatal_error, lost_to, result_of

WORKLOAD = Workload(task=TaskReference(kind="file", target="mine.py"))
LAYOUT = BatchLayout(global_batch_size=8, micro_batch_size=8)


def capacity() -> Spec:
    return CapacitySpec(workload=WORKLOAD, micro_batch_size=8)


def throughput(limit: int | None) -> Spec:
    return ThroughputSpec(workload=WORKLOAD, layout=LAYOUT, device=DeviceSettings(memory_limit=limit))


def train(limit: int | None) -> Spec:
    device = DeviceSettings(memory_limit=limit)
    return TrainSpec(
        workload=WORKLOAD, layout=LAYOUT, learning_rate=1e-3, token_budget=64, evaluation_interval=64, device=device
    )


def test_a_log_without_a_fatal_error_gives_none() -> None:
    assert fatal_error('step 1\n  File "mine.py", line 3 in loss\n', Path("mine.py")) == ""


def test_the_line_of_the_persons_file_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import faulthandler, os\nfaulthandler.enable()\ndef loss():\n    os.abort()\nloss()\n")
    died = subprocess.run([sys.executable, str(mine)], capture_output=True, text=True, check=False)
    log = "printed before\n" + died.stderr
    assert fatal_error(log, mine) == "Fatal Python error: Aborted (line 4 of mine.py)"
    assert fatal_error(log, Path("other.py")) == "Fatal Python error: Aborted"


LOG = "Fatal Python error: Aborted\n"
BAD_ALLOC = "terminate called after throwing an instance of 'std::bad_alloc'\n"


@pytest.mark.parametrize(
    ("spec", "death", "outcome", "phrases"),
    [
        (capacity(), Death(-9, oom_kills=1), Outcome.OUT_OF_MEMORY, ["ran out of memory and killed", "by SIGKILL"]),
        (train(None), Death(-9, oom_kills=1), Outcome.OUT_OF_MEMORY, ["ran out of memory and killed"]),
        (capacity(), Death(-11, log=LOG), Outcome.OUT_OF_MEMORY, ["by SIGSEGV, possibly out of memory", "Aborted."]),
        (train(None), Death(-6, log=BAD_ALLOC), Outcome.OUT_OF_MEMORY, ["by SIGABRT, out of memory"]),
        (capacity(), Death(7, log=LOG), Outcome.FAILED, ["with exit code 7, 2 times.", "Aborted."]),
        (capacity(), Death(-8, log="last"), Outcome.FAILED, ["by SIGFPE", "Last output: last"]),
        (throughput(limit=2**30), Death(-6), Outcome.OUT_OF_MEMORY, ["by SIGABRT, possibly out of memory"]),
        (throughput(limit=None), Death(-6), Outcome.FAILED, ["by SIGABRT, 2 times."]),
        (train(limit=2**30), Death(-11), Outcome.FAILED, ["by SIGSEGV, 2 times."]),
        (train(None), Death(0), Outcome.FAILED, ["with exit code 0"]),
    ],
)
def test_deaths_that_say_something_about_the_run(
    spec: Spec, death: Death, outcome: Outcome, phrases: list[str]
) -> None:
    found = result_of(spec, death, 2)
    assert found is not None
    assert found.outcome is outcome
    assert all(phrase in found.reason for phrase in phrases), found.reason


@pytest.mark.parametrize("spec", [capacity(), throughput(2**30), train(2**30)], ids=lambda spec: spec.kind)
@pytest.mark.parametrize(
    "death",
    [
        Death(-9),
        Death(-9, log="CUDA out of memory, trying again with less"),  # what it printed before says nothing of the kill
        Death(-15),
        Death(-1),
        Death(1, began=False, errors="no batchlab here"),
        Death(-11, began=False),
        Death(1, relayed=True),
        Death(137, relayed=True),
    ],
)
def test_deaths_that_say_nothing_about_the_run(spec: Spec, death: Death) -> None:
    assert result_of(spec, death, 2) is None
    assert "run the same command again" in str(lost_to(spec, death, 4))


def test_a_launcher_s_exit_code_is_a_signal_of_the_worker() -> None:
    found = result_of(capacity(), Death(139, relayed=True), 2)
    assert found is not None
    assert "SIGSEGV" in found.reason
    assert Death(139).signal is None


def test_a_run_that_was_silent_quotes_its_last_output() -> None:
    assert "Last output: the last line" in str(failure_of_silence(6.0, "the last line"))
    assert "6 seconds" in str(failure_of_silence(6.0, ""))
