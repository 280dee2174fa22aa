"""The kernel's counters of processes killed for lack of memory, in trees like those of real machines."""

from __future__ import annotations

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
