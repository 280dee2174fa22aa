"""Errors whose text is written for the person who can fix the cause.

An error's text is one or two sentences: what was given, what is possible, what to do. The command line prints exactly
that text, without a traceback, and exits with the error's `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class BatchlabError(Exception):
    """Something that the person can fix. `str(error)` is the text they read."""

    exit_code = 1


class InputError(BatchlabError):
    """A wrong value, file or combination was given; nothing has been written."""

    exit_code = 2


class StudyChanged(InputError):
    """The study on disk has another configuration than the one given now, or the person's code was edited."""


class StudyInterrupted(BatchlabError):
    """Ctrl-C or SIGTERM. Finished runs are kept; the text says how to continue."""

    exit_code = 130


class StorageFailed(BatchlabError):
    """The disk is full or not writable. Finished runs are kept; the text says what to do."""


class WorkerLost(BatchlabError):
    """A worker process was ended from outside, could not start, or broke its protocol, again and again.

    Nothing is recorded for its run. Finished runs are kept; the text says how to continue.
    """


class RunFailure(BatchlabError):
    """A run did not complete. It never ends a study: the text becomes the `reason` of the run's record."""


class NotMeasurable(BatchlabError):
    """A quantity cannot be measured on this task; the study goes on without it, and the text says why."""


def did_you_mean(given: str, possible: Iterable[str]) -> str:
    """`" Did you mean 'adamw'?"`, or an empty string where nothing possible is close to what was given."""
    close = difflib.get_close_matches(given, list(possible), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def sentence_from_validation(error: ValidationError, fields: Iterable[str] = ()) -> str:
    """The first problems that pydantic found, as sentences: the dotted field, the value given, what is possible.

    `fields` are the dotted names that exist; for a misspelt one the closest is suggested.
    """
    known = list(fields)
    sentences = []
    for problem in error.errors()[:3]:
        location = [str(part) for part in problem["loc"]]
        name = ".".join(location) or "value"
        if problem["type"] == "extra_forbidden":
            sentences.append(f"There is no setting {name!r}.{did_you_mean(name, known) or _siblings(name, known)}")
        elif problem["type"] == "missing":
            sentences.append(f"{name} is missing.")
        else:
            message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
            sentences.append(f"{name} is {problem['input']!r}: {message.rstrip('.')}.")
    return " ".join(sentences)


def _siblings(name: str, known: list[str]) -> str:
    parent = name.rpartition(".")[0]
    siblings = sorted(field for field in known if field.rpartition(".")[0] == parent)
    return f" Possible: {', '.join(siblings)}." if siblings else ""
