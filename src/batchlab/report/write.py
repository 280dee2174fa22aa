"""Puts a study's report on disk, so that whoever opens it sees a whole one, the old or the new."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from batchlab.analysis.findings import Findings
from batchlab.report.document import PasteReady
from batchlab.report.html import render_html
from batchlab.report.markdown import render_markdown


def write_report(folder: Path, findings: Findings, plan: PasteReady | None, notes: str | None) -> None:
    """Writes report.html and report.md into `folder`. OSError when the disk is full or the folder not writable."""
    for name, text in (
        ("report.html", render_html(findings, plan, notes)),
        ("report.md", render_markdown(findings, plan, notes)),
    ):
        _replace(folder / name, text)


def _replace(path: Path, text: str) -> None:
    """Write beside, then rename; a failed write leaves nothing behind."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
