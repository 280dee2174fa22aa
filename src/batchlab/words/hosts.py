"""What `batchlab doctor` says of a machine that can take part in a study."""

from __future__ import annotations

from batchlab.core.format import format_plural


def host_line(cores: int, cards: int, workers: int) -> str:
    """Its cores and GPUs, how many runs it takes at a time, and that it passed what is asked of it."""
    has = f"{format_plural(cores, 'core')}, {format_plural(cards, 'GPU')}"
    return f"{has}; {format_plural(workers, 'run')} at a time; shares the folder and its locks"
