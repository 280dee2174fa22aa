"""The one sweep of a table that others build on."""

from __future__ import annotations

from batchlab.analysis.audit.audit import Audit, Supported
from batchlab.analysis.audit.flaw import Severity
from batchlab.core.errors import InputError


def only_sweep(audit: Audit, what: str) -> Supported:
    """The rows of the only sweep in the table. `what`: the table, as an error names it.

    Raises InputError where the table contradicts itself, or holds no sweep or several.
    """
    if audit.worst is Severity.ERROR:
        raise InputError(
            f"{what} contradicts itself, so nothing can rest on it. `batchlab audit` shows how; correct the table."
        )
    if len(audit.sweeps) != 1:
        raise InputError(
            f"{what} holds {len(audit.sweeps)} sweeps that cannot be compared with each other; give a table with the "
            "rows of one of them."
        )
    return audit.sweeps[0]
