"""Which commit of the user's code a study was begun with."""

from __future__ import annotations

import subprocess
from pathlib import Path

from batchlab.words.notes import Revision

SECONDS = 10.0
"""Git on a slow network disk must not hold up a study for longer."""


def revision_of(folder: Path) -> Revision | None:
    """What is checked out in `folder`; None where it is in no git repository, or git is not installed."""
    commit = _git(folder, "rev-parse", "--short=10", "HEAD")
    if not commit:
        return None
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD") or ""
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return Revision(commit, "" if branch == "HEAD" else branch, changed=bool(changed))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
