"""An audit as text for a terminal, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from batchlab.analysis.audit.against import Reproduction
from batchlab.analysis.audit.audit import Audit
from batchlab.analysis.audit.unchecked import unchecked
from batchlab.words.audit import (
    audit_notes,
    describe_reproduction,
    describe_setting,
    describe_supported,
    describe_unchecked,
    describe_verdict,
)


def audit_text(audit: Audit, repeated: Reproduction | None = None) -> str:
    """The verdict, every finding with its lines, arithmetic and remedy, and what the table shows all the same."""
    lines = [f"{audit.table.name}: {describe_verdict(audit)}"]
    for note in audit_notes(audit):
        lines += ["", f"{note.severity.upper():8}{note.what}", f"        {note.arithmetic}", f"        {note.remedy}"]
        if note.where:
            lines.append(f"        ({note.where})")
    if audit.supported:
        lines.append("")
        lines += [f"{name:8}{text}" for name, text in labelled("shows", supported_texts(audit))]
    if repeated is not None:
        lines += ["", *(f"{name:8}{text}" for name, text in labelled("repeats", describe_reproduction(repeated)))]
    if not_checked := describe_unchecked(audit.table):
        lines += ["", f"{'not checked':12}{not_checked}"]
    if audit.table.extra:
        lines += ["", f"{'unread':8}{', '.join(audit.table.extra)}"]
    return "\n".join(lines)


def supported_texts(audit: Audit) -> list[str]:
    """What each group of comparable rows shows, with what it has in common where there are several."""
    return [
        f"{describe_setting(group)}: {describe_supported(group)}" if group.setting else describe_supported(group)
        for group in audit.supported
    ]


def labelled(label: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """The label beside the first of several lines."""
    return [(label if not place else "", text) for place, text in enumerate(texts)]


def audit_json(audit: Audit, repeated: Reproduction | None = None) -> str:
    """One JSON object: verdict, findings with their numbers, and the batch sizes of every group."""
    value: dict[str, Any] = {
        "table": audit.table.name,
        "rows": len(audit.table.entries),
        "verdict": describe_verdict(audit),
        "findings": [asdict(note) for note in audit_notes(audit)],
        "shows": [
            {"setting": dict(group.setting), "sizes": [asdict(size) for size in group.sizes]}
            for group in audit.supported
        ],
        "not_checked": {each.check: list(each.lacks) for each in unchecked(audit.table)},
        "unread_columns": list(audit.table.extra),
    }
    if repeated is not None:
        value["repeats"] = {**asdict(repeated), "told": describe_reproduction(repeated)}
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
