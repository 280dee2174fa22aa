"""How many processes the kernel has killed for lack of memory: its own counters, on Linux.

The counter of this process's control group comes first: workers are in the same group, and a kill for lack of memory of
the group or of the machine is counted there. The machine's counter is used where there is no such group.
"""

from __future__ import annotations

from pathlib import Path


def count_oom_kills(root: Path = Path("/")) -> int | None:
    """Kills so far where this process runs; None where the system does not count them."""
    groups = _groups(root)
    mount = root / "sys/fs/cgroup"
    # Inside a container the path may be that of the host, and the mount already this group's own folder.
    for folder, name in (
        (mount / groups.get("", "").lstrip("/"), "memory.events"),
        (mount, "memory.events"),
        (mount / "memory" / groups.get("memory", "").lstrip("/"), "memory.oom_control"),
        (mount / "memory", "memory.oom_control"),
        (root / "proc", "vmstat"),
    ):
        found = _counter(folder / name)
        if found is not None:
            return found
    return None


def _groups(root: Path) -> dict[str, str]:
    """Controller → path of this process's control group; the empty name is that of version 2."""
    lines = _lines(root / "proc/self/cgroup")
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return {controller: path for _, names, path in parts for controller in names.split(",")}


def _counter(file: Path) -> int | None:
    for line in _lines(file):
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:  # not Linux, or the group was moved or hidden
        return []
