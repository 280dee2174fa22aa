"""What the terminal shows about experiment trackers."""

from __future__ import annotations

from pathlib import Path


def tracker_dropped(name: str, error: Exception, study: Path) -> str:
    """A tracker raised an error and gets nothing more of the study; how to send it everything afterwards."""
    return (
        f"   {name} failed and will not be updated further ({type(error).__name__}: {error}). The study continues; "
        f"afterwards run: batchlab mirror {study} --to {name}"
    )
