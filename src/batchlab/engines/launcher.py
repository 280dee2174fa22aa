"""The end of processes that lead their groups: workers, and launchers such as srun and ssh."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

_TAKES_BACK_SECONDS = 3.0


def end_launcher(launcher: subprocess.Popen[bytes]) -> None:
    """End a launcher that leads its group, with what it started here.

    SIGTERM comes first: at that, srun takes back what it asked for. A request whose srun was killed stays in the queue.
    """
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGTERM)
            launcher.wait(_TAKES_BACK_SECONDS)
    kill_group(launcher)


def kill_group(leader: subprocess.Popen[bytes]) -> None:
    """End a process that leads its group, and everything in it, at once."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
