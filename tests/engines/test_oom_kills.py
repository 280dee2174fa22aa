"""The kernel's counters of processes killed for lack of memory, in trees like those of real machines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchlab.engines.oom_kills import count_oom_kills

EVENTS = "low 0\nhigh 3\nmax 7\noom 2\noom_kill {}\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
VMSTAT = "nr_free_pages 1\noom_kill {}\nzone_reclaim_failed 0\n"

MACHINES = {
    "version 2": {
        "proc/self/cgroup": "0::/user.slice/session-2.scope\n",
        "sys/fs/cgroup/user.slice/session-2.scope/memory.events": EVENTS.format(5),
        "proc/vmstat": VMSTAT.format(9),
    },
    "version 2 in a container": {
        "proc/self/cgroup": "0::/docker/4ef\n",
        "sys/fs/cgroup/memory.events": EVENTS.format(5),
        "proc/vmstat": VMSTAT.format(9),
    },
    "version 1": {
        "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/job_7\n0::/\n",
        "sys/fs/cgroup/memory/job_7/memory.oom_control": CONTROL.format(5),
        "sys/fs/cgroup/memory/memory.oom_control": CONTROL.format(8),
        "proc/vmstat": VMSTAT.format(9),
    },
    "version 1 in a container": {
        "proc/self/cgroup": "4:memory:/docker/4ef\n",
        "sys/fs/cgroup/memory/memory.oom_control": CONTROL.format(5),
    },
    "no group that counts": {
        "proc/self/cgroup": "0::/user.slice\n",
        "sys/fs/cgroup/user.slice/cgroup.events": "populated 1\n",
        "proc/vmstat": VMSTAT.format(5),
    },
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_counter_nearest_to_this_process_is_read(tmp_path: Path, machine: str) -> None:
    for name, content in MACHINES[machine].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert count_oom_kills(tmp_path) == 5


def test_a_system_without_counters_has_none(tmp_path: Path) -> None:
    assert count_oom_kills(tmp_path) is None


HUNGRY = """
import sys
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
held = []
while True:
    held.append(bytearray(10**7))
"""

STUDY = """
import sys
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from batchlab.core.experiment import TaskReference
from batchlab.core.spec import CapacitySpec, Workload
from batchlab.core.worker import WorkerCommand
from batchlab.engines.local import LocalEngine
spec = CapacitySpec(workload=Workload(task=TaskReference(kind="file", target="mine.py")), micro_batch_size=4)
engine = LocalEngine(Path(sys.argv[1]), 1, command=WorkerCommand((sys.executable, "-c", sys.argv[2])))
engine.submit(spec, exclusive=True)
while not (events := engine.wait(1.0)):
    pass
engine.close()
print(events[0].record.outcome, events[0].record.reason)
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with 300 MiB of memory, of version 1; needs the right to make one."""
    own = next(
        (line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line),
        None,
    )
    if own is None:
        pytest.skip("this machine has no memory control groups of version 1; the trees above stand for the others")
    group = Path("/sys/fs/cgroup/memory") / own.strip().lstrip("/") / "batchlab-test"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(300 * 2**20))
    except OSError as error:
        pytest.skip(f"making a control group is not permitted here: {error}")
    yield group
    group.rmdir()


@pytest.mark.slow
def test_a_worker_that_the_kernel_really_kills_for_memory_is_out_of_memory(small_group: Path, tmp_path: Path) -> None:
    inside = f'echo $$ > {small_group}/cgroup.procs && exec "$@"'
    command = ["bash", "-c", inside, "bash", sys.executable, "-c", STUDY, str(tmp_path), HUNGRY]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.stdout.startswith("out_of_memory The system ran out of memory"), ended.stderr
