"""Writes a study's report to disk atomically: a reader sees the old report or the new one, never part of one."""

from __future__ import annotations

from pathlib import Path

from batchlab.analysis.findings import Findings
from batchlab.core.files import Files
from batchlab.report.document import PasteReady
from batchlab.report.html import render_html
from batchlab.report.markdown import render_markdown
from batchlab.storage.atomic import write_atomically
from batchlab.storage.files import DISK
from batchlab.words.story import tell


def write_report(
    folder: Path, findings: Findings, plan: PasteReady | None, notes: str | None, files: Files = DISK
) -> None:
    """Writes report.html and report.md into `folder`; StorageFailed when the disk takes no more.

    Requires the lock of a study's folder.
    """
    story = tell(findings)
    for name, text in (
        ("report.html", render_html(findings, story, plan, notes)),
        ("report.md", render_markdown(findings, story, plan, notes)),
    ):
        # an error message may hold file names that are not valid UTF-8
        write_atomically(folder / name, text.encode(errors="backslashreplace"), files)
