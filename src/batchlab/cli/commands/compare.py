"""compare: studies, or tables of runs, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from batchlab.analysis.comparison import Comparison, Side
    from batchlab.analysis.values import Interval


def compare(
    first: Path,
    second: Path,
    /,
    *others: Path,
    page: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    exit_code: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Whether one study reaches a lower loss than another, by how much, and what that is worth in tokens.

    Parameters
    ----------
    first
        What the others are compared with: a study's folder, or a table of runs (CSV, TSV, JSON Lines, Markdown).
    second
        A study's folder or a table.
    others
        More of them; each is compared with the first.
    page
        Write an HTML page with the verdicts and the curves of all on the same axes.
    json
        Print one JSON object instead of text.
    exit_code
        Exit with 1 unless every comparison finds the later one better or within noise.
    """
    import json as encoder

    from batchlab.analysis.comparison import Verdict, compare
    from batchlab.words.comparison import describe_comparison, describe_verdict

    sides = [_side(path) for path in (first, second, *others)]
    found = [compare(sides[0], side) for side in sides[1:]]
    if json:
        told = [
            {
                "first": one.first.name,
                "second": one.second.name,
                "verdict": one.verdict,
                "told": describe_verdict(one),
                "obstacles": one.obstacles,
                "loss_difference": _interval(one.loss),
                "share_of_loss": _interval(one.share),
                "fewer_tokens": _interval(one.tokens),
                "more_seeds": one.more_seeds,
                "settings": {setting.name: [setting.first, setting.second] for setting in one.differ},
            }
            for one in found
        ]
        print(encoder.dumps(told, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join("\n".join(describe_comparison(one)) for one in found))
    if page is not None:
        _write(page, found)
    held = all(one.verdict in (Verdict.BETTER, Verdict.WITHIN_NOISE) for one in found)
    return 1 if exit_code and not held else 0


def _write(page: Path, found: list[Comparison]) -> None:
    from batchlab.report.comparison_page import comparison_page
    from batchlab.storage.atomic import write_atomically

    write_atomically(page, comparison_page(found))


def _interval(interval: Interval | None) -> dict[str, object] | None:
    from dataclasses import asdict

    return None if interval is None else asdict(interval)


def _side(path: Path) -> Side:
    """A study's folder or a table. Raises InputError where it is neither."""
    from batchlab.analysis.audit.audit import audit_table
    from batchlab.analysis.comparison import side_of
    from batchlab.audit.reading import read_table
    from batchlab.audit.side import side_of_table
    from batchlab.core.errors import InputError, quote
    from batchlab.storage.store import Store
    from batchlab.study.documents import read_findings

    if Store.exists(path):
        return side_of(read_findings(Store.open(path)), path.name)
    if path.is_dir():
        tables = sorted(path.glob("*.csv"))
        if len(tables) != 1:
            raise InputError(
                f"{quote(str(path))} is no study and holds {len(tables)} CSV files; give a study's folder or one table."
            )
        path = tables[0]
    return side_of_table(audit_table(read_table(path, {}, {})), path.name)
