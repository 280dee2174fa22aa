"""Errors whose text is written for the person who can fix the cause.

An error's text is one or two sentences: what was given, what is possible, what to do. The command line prints exactly
that text, without a traceback, and exits with the error's `exit_code`.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class BatchlabError(Exception):
    """Something that the person can fix. `str(error)` is the text they read."""

    exit_code = 1
    resumable = False  # the same command, given again, continues


class InputError(BatchlabError):
    """A wrong value, file or combination was given; nothing has been written."""

    exit_code = 2


class StudyChanged(InputError):
    """The study on disk has another configuration than the one given now, or the person's code or data has changed."""


class StudyInterrupted(BatchlabError):
    """Ctrl-C or SIGTERM. Finished runs are kept; the text says how to continue."""

    exit_code = 130
    resumable = True


class StorageFailed(BatchlabError):
    """The disk is full or not writable. Finished runs are kept; the text says what to do."""

    resumable = True


class WorkerLost(BatchlabError):
    """A worker process was ended from outside, could not start, or broke its protocol, again and again.

    Nothing is recorded for its run. Finished runs are kept; the text says how to continue.
    """

    resumable = True


class RunFailure(BatchlabError):
    """A run did not complete. It never ends a study: the text becomes the `reason` of the run's record."""


class NotMeasurable(BatchlabError):
    """A quantity cannot be measured on this task; the study goes on without it, and the text says why."""


ECHO = 200
"""Most characters of a given value that an error repeats."""


class _Repr(reprlib.Repr):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.maxstring = self.maxlong = self.maxother = limit

    def repr_int(self, x: int, level: int) -> str:
        """Python refuses to write integers of more than 4300 digits in decimal."""
        return super().repr_int(x, level) if x.bit_length() < 1000 else shorten(hex(x), self.maxlong)


def quote(given: object, limit: int = ECHO) -> str:
    """A given value as Python writes it, without the middle where it has more than `limit` characters."""
    return shorten(_Repr(limit).repr(given), limit)


def shorten(text: str, limit: int) -> str:
    """A text without its middle where it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    end = (limit - 1) // 3
    return f"{text[: limit - 1 - end]}…{text[len(text) - end :]}"


def did_you_mean(given: str, possible: Iterable[str]) -> str:
    """`" Did you mean 'adamw'?"`, or an empty string where nothing possible is close to what was given."""
    if len(given) > ECHO:
        return ""
    close = difflib.get_close_matches(given, list(possible), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def sentence_from_validation(error: ValidationError, fields: Iterable[str] = (), *, prefix: str = "") -> str:
    """The first problems that pydantic found, as sentences: the dotted field, the value given, what is possible.

    `fields` are the dotted names that exist; for a misspelt one the closest is suggested. `prefix` precedes each name.
    """
    known = list(fields)
    sentences = []
    for problem in error.errors()[:2]:
        name = shorten(prefix + (".".join(str(part) for part in problem["loc"]) or "value"), ECHO // 2)
        if problem["type"] == "extra_forbidden":
            sentences.append(no_such_setting(name, known))
        elif problem["type"] == "missing":
            sentences.append(f"{name} is missing.")
        elif problem["type"] == "model_type":
            given = quote(problem["input"], ECHO // 2)
            sentences.append(f"{name} is {given}, not a section.{_siblings(f'{name}.', known)}")
        else:
            message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
            sentences.append(f"{name} is {quote(problem['input'], ECHO // 2)}: {message.rstrip('.')}.")
    return " ".join(sentences)


def no_such_setting(name: str, known: Iterable[str]) -> str:
    """The sentence for a dotted name that does not exist, with what was probably meant.

    That is the same name in another section, else the closest setting or section, else any of its section.
    """
    settings = list(known)
    parts = [each.split(".") for each in settings]
    sections = {".".join(each[:end]) for each in parts for end in range(1, len(each))}
    named = {*settings, *(section for section in sections if not name.startswith(f"{section}."))}
    elsewhere = [each for each in settings if each.endswith(f".{name.rpartition('.')[2]}")]
    close = f" Did you mean {elsewhere[0]!r}?" if elsewhere else did_you_mean(name, named)
    return f"There is no setting {quote(name)}.{close or _siblings(name, named)}"


def _siblings(name: str, known: Iterable[str]) -> str:
    parent = name.rpartition(".")[0]
    siblings = sorted(each for each in known if each.rpartition(".")[0] == parent)
    return f" Possible: {', '.join(siblings)}." if siblings else ""
