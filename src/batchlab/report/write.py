"""A study's report as the texts of its files."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.report.document import PasteReady, build_document
from batchlab.report.html import render_html
from batchlab.report.markdown import render_markdown
from batchlab.words.story import tell


def render_report(findings: Findings, plan: PasteReady | None, notes: str | None) -> dict[str, str]:
    """File name → text, the smaller file first. `plan` gives the paste-ready block, `notes` is the person's own text;
    either may be missing."""
    document = build_document(findings, tell(findings), plan, notes)
    return {
        "report.md": render_markdown(document),
        "report.html": render_html(document),
    }
