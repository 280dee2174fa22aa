"""A study's report as the texts of its files."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.report.document import PasteReady, build_document
from batchlab.report.html import render_html
from batchlab.report.markdown import render_markdown
from batchlab.words.story import tell


def render_report(
    findings: Findings, plan: PasteReady | None, notes: str | None, written: float | None = None
) -> dict[str, str]:
    """File name → text, the smaller file first. `plan` gives the paste-ready block, `notes` is the person's own text,
    `written` the time in seconds since 1970; each may be missing."""
    document = build_document(findings, tell(findings), plan, notes, written)
    return {
        "report.md": render_markdown(document),
        "report.html": render_html(document),
    }
