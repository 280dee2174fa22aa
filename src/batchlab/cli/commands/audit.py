"""audit: what is wrong with somebody's table of training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def audit(
    file: Path,
    /,
    *,
    map: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    given: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    json: Annotated[bool, Parameter(negative=())] = False,
    page: Path | None = None,
    against: Path | None = None,
) -> int:
    """Audit a table of training runs that anybody made: CSV, TSV, JSON Lines, or a Markdown page with a table.

    Columns are recognised by common names. The exit code is 1 where something contradicts the table's conclusions.

    Parameters
    ----------
    file
        The table, one row per run, with a header.
    map
        A quantity and the column that holds it, e.g. steps=updates; may be repeated.
    given
        A quantity that holds for every row and has no column, e.g. sequence_length=256, tokens=327.68M or
        memory_limit=16GiB; may be repeated.
    json
        Print one JSON object instead of text.
    page
        Also write an HTML page to this file.
    against
        A published table: which of its numbers FILE reproduces, and within what.
    """
    from batchlab.analysis.audit.against import reproduction
    from batchlab.analysis.audit.audit import audit_table
    from batchlab.analysis.audit.flaw import Severity
    from batchlab.audit.document import audit_json, audit_text
    from batchlab.audit.page import audit_page
    from batchlab.audit.reading import read_table
    from batchlab.storage.atomic import write_atomically

    table = read_table(file, _pairs(map, "--map"), _pairs(given, "--given"))
    found = audit_table(table)
    repeated = reproduction(read_table(against, {}, {}), table) if against is not None else None
    print(audit_json(found, repeated) if json else audit_text(found, repeated))
    if page is not None:
        write_atomically(page, audit_page(found, repeated))
    return 1 if found.worst is Severity.ERROR else 0


def _pairs(texts: tuple[str, ...], flag: str) -> dict[str, str]:
    from batchlab.core.errors import InputError, quote

    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise InputError(f"{flag} {quote(text)}: write it as NAME=VALUE, for example {flag} steps=updates.")
        pairs[name.strip()] = value.strip()
    return pairs
