"""What Python's fault handler wrote into a run's log while its process died, in a sentence."""

from __future__ import annotations

import re
from pathlib import Path

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in ', re.MULTILINE)


def fatal_error(log: str, file: Path) -> str:
    """`Fatal Python error: Aborted (line 12 of mine.py)`: the last such error of the log, and the innermost line of the
    person's file in the thread that died; empty where there is none."""
    _, mark, dump = log.rpartition("Fatal Python error: ")
    if not mark:
        return ""
    said = dump.splitlines()[0]
    died = dump.partition("Current thread")[2].partition("\n\n")[0]
    line = next((frame["line"] for frame in _FRAME.finditer(died) if Path(frame["file"]).name == file.name), None)
    return f"{mark}{said}" + (f" (line {line} of {file.name})" if line else "")
