"""What the values of options may be, beyond their type: whole numbers as such, finite numbers, nothing empty.

cyclopts by itself rounds `--seeds 1.5` and reads 1e20 as an integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from cyclopts import Parameter, Token

from batchlab.core.errors import ECHO, InputError, quote, shorten
from batchlab.core.experiment import MOST_TEXT
from batchlab.core.parse import parse_whole


def whole(least: int, most: int) -> Parameter:
    """The parameter of a whole number in a range."""

    def convert(_: object, tokens: Sequence[Token]) -> int:
        return parse_whole(tokens[0].value, _flag(tokens[0]), least, most)

    return Parameter(converter=convert)


def positive(most: float) -> Parameter:
    """The parameter of a number above 0."""

    def convert(_: object, tokens: Sequence[Token]) -> float:
        text = tokens[0].value
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 < number <= most:
            raise InputError(f"{_flag(tokens[0])} {quote(text)}: give a number above 0, at most {most:g}.")
        return number

    return Parameter(converter=convert)


def _flag(token: Token) -> str:
    return token.keyword or "The argument"


def require_values(arguments: Sequence[str]) -> None:
    """Raise InputError where an argument is empty, or longer than any path."""
    for before, argument in pairwise(["", *arguments]):
        name, equals, value = argument.partition("=")
        if not argument.strip() or (name.startswith("--") and equals and not value.strip()):
            option = name if equals else before
            empty = shorten(option, ECHO) if option.startswith("-") else "An argument"
            raise InputError(f"{empty} is empty; give a value, or omit it.")
        if len(argument) > MOST_TEXT:
            raise InputError(
                f"{quote(argument)} has {len(argument):,} characters; an argument has at most {MOST_TEXT:,}."
            )
