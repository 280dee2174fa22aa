"""Disk space that documents leave to runs: a report can be made again, a record that did not fit is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

from batchlab.core.errors import StorageFailed
from batchlab.core.format import format_bytes

RESERVED_BYTES = 4 * 2**20
"""What stays free: records, metrics and logs of the runs that are under way take kilobytes each."""


def require_space(folder: Path, size: int) -> None:
    """Raise StorageFailed where a document of this many bytes would leave less than the reserve.

    A file system that does not tell its free space is taken to have enough; writing shows whether it has.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return
    if free < size + RESERVED_BYTES:
        raise StorageFailed(
            f"The disk of {folder} has {format_bytes(free)} left, and the last {format_bytes(RESERVED_BYTES)} are kept "
            "for records. Free some space there."
        )
