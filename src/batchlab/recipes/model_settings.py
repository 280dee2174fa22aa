"""A recipe's model settings: its defaults, overridden by what was given, checked before anything is built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from batchlab.core.errors import InputError, did_you_mean

Settings = dict[str, Any]


def model_settings(given: Mapping[str, Any], defaults: Mapping[str, int | float]) -> Settings:
    """`defaults` with `given` over them; InputError for a name or value that makes no model.

    A default that is a whole number asks for one of at least 1; `dropout` lies in [0, 1); other numbers are positive.
    """
    for name, value in given.items():
        if name not in defaults:
            possible = ", ".join(f"model.{known}" for known in defaults)
            raise InputError(f"There is no setting 'model.{name}'.{did_you_mean(name, defaults)} Possible: {possible}.")
        _require_in_range(name, value, defaults[name])
    return {**defaults, **given}


def _require_in_range(name: str, value: object, default: int | float) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if isinstance(default, int):
        if not (math.isfinite(number) and number == int(number) and number >= 1):
            raise InputError(f"model.{name} is {value!r}: give a whole number of at least 1.")
    elif name == "dropout":
        if not 0 <= number < 1:
            raise InputError(f"model.{name} is {value!r}: give a number from 0 up to, but not including, 1.")
    elif not number > 0:
        raise InputError(f"model.{name} is {value!r}: give a number above 0.")


def require_heads(settings: Settings, *, even: bool) -> None:
    """InputError where the width does not divide into the heads; `even`: rotation needs heads of an even width."""
    width, heads = settings["d_model"], settings["heads"]
    step = 2 * heads if even else heads
    if width % step:
        raise InputError(
            f"model.d_model {width} does not divide into model.heads {heads}{' of an even width' if even else ''}; "
            f"make it a multiple of {step}."
        )
