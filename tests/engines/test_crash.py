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
from batchlab.engines.crash import failure_of_death, failure_of_silence, fatal_error

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


@pytest.mark.parametrize(
    ("spec", "exit_code", "deaths", "outcome", "phrases"),
    [
        (capacity(), -9, 2, Outcome.OUT_OF_MEMORY, ["killed by the system (by SIGKILL)", "most likely for memory"]),
        (capacity(), -11, 2, Outcome.OUT_OF_MEMORY, ["ended by SIGSEGV", "possibly out of memory", "Aborted."]),
        (capacity(), 7, 1, Outcome.FAILED, ["ended with exit code 7. ", "Aborted."]),
        (throughput(limit=2**30), -6, 2, Outcome.OUT_OF_MEMORY, ["ended by SIGABRT"]),
        (throughput(limit=None), -9, 2, Outcome.FAILED, ["by SIGKILL, 2 times; memory is the usual cause."]),
        (train(limit=2**30), -9, 3, Outcome.FAILED, ["by SIGKILL, 3 times; memory is the usual cause."]),
    ],
)
def test_a_death_that_memory_explains_counts_as_out_of_memory_where_memory_is_measured(
    spec: Spec, exit_code: int, deaths: int, outcome: Outcome, phrases: list[str]
) -> None:
    found, failure = failure_of_death(spec, exit_code, deaths, "Fatal Python error: Aborted", "the last line")
    assert found is outcome
    assert all(phrase in str(failure) for phrase in phrases), str(failure)


def test_without_a_fatal_error_the_last_output_is_quoted() -> None:
    _, failure = failure_of_death(capacity(), 7, 1, "", "the last line")
    assert str(failure).endswith("Last output: the last line")
    assert "Last output: the last line" in str(failure_of_silence(6.0, "the last line"))
    assert "6 seconds" in str(failure_of_silence(6.0, ""))
