"""A run that a full disk ended is no result, whatever its library raised instead."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from batchlab.storage.refused_write import as_refused_write

FULL = OSError(errno.ENOSPC, "No space left on device")


def raised(error: BaseException, because: BaseException | None = None) -> BaseException:
    error.__context__ = because
    return error


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        raised(RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"), FULL),
        raised(RuntimeError("unexpected"), raised(ValueError(""), FULL)),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 640 vs 598"),
        RuntimeError("write(): fd 3 failed with No space left on device"),
        Exception("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
    ids=lambda error: str(error)[:40],
)
def test_a_refused_write_is_recognised(error: BaseException) -> None:
    failure = as_refused_write(error, Path("runs/train-1"))
    assert failure is not None
    assert "full" in str(failure) or "quota" in str(failure)
    assert "run the same command again" in str(failure)


def test_other_errors_are_results_of_the_run() -> None:
    circle = ValueError("a")
    circle.__context__ = raised(KeyError("b"), circle)
    for error in (
        circle,
        OSError(errno.ENOENT, "No such file or directory"),
        RuntimeError("[enforce fail at inline_container.cc:208] . file not found: data.pkl"),
        raised(RuntimeError("a wrong shape"), FileNotFoundError(errno.ENOENT, "No such file or directory")),
    ):
        assert as_refused_write(error, Path("runs/train-1")) is None
