"""What counts as evidence that a run failed because a disk took no more: the one place that decides it.

A full disk says nothing about a batch size or a learning rate, so such a run stays unrecorded and is done again.
Libraries put errors of their own in place of the system's, some with its text, some without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from batchlab.core.errors import StorageFailed
from batchlab.storage.atomic import storage_failure

_REFUSED = re.compile(
    "|".join(
        (
            r"No space left on device|Disk quota exceeded|Read-only file system",  # safetensors, torch's legacy format
            r"inline_container\.cc:\d+\] \. unexpected pos|basic_ios::clear: iostream error",  # torch.save to a path
        )
    )
)
"""Seen with torch 2.13 and safetensors 0.8 on a full file system."""


def as_refused_write(error: BaseException, path: Path) -> StorageFailed | None:
    """The error for a run in `path` that a refused write ended, its own or that of a program; None for any other."""
    for each in _chain(error):
        failure = storage_failure(each, path) if isinstance(each, OSError) else None
        if failure is not None:
            return failure
    return next(filter(None, (refused_write(str(each), path) for each in _chain(error))), None)


def refused_write(text: str, path: Path) -> StorageFailed | None:
    """The same from what a program said before it ended with an error."""
    said = next((line.strip() for line in text.splitlines() if _REFUSED.search(line)), None)
    if said is None:
        return None
    return StorageFailed(
        f"{path.name} could not write a file ({said[:200]}), probably because a disk is full: that of {path}, or one "
        "that the program writes to. Finished runs are kept. Free some space and run the same command again to go on."
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and those in whose place it was raised."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
