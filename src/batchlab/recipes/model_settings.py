"""Model settings of a recipe: the defaults, overridden by validated user settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from batchlab.core.errors import InputError, did_you_mean, quote

Settings = dict[str, Any]

MOST = 1_000_000
"""No model that ships has a width or depth near it."""


def model_settings(given: Mapping[str, Any], defaults: Mapping[str, int | float]) -> Settings:
    """`defaults` updated with `given`. Raises InputError for an unknown name or an invalid value.

    If the default is an integer, the value must be an integer of at least 1 and at most MOST. `dropout` must be in
    [0, 1). Other values must be positive and finite.
    """
    for name, value in given.items():
        if name not in defaults:
            possible = ", ".join(f"model.{known}" for known in defaults)
            raise InputError(
                f"There is no setting {quote(f'model.{name}')}.{did_you_mean(name, defaults)} Possible: {possible}."
            )
        _require_in_range(name, value, defaults[name])
    return {**defaults, **given}


def _require_in_range(name: str, value: object, default: int | float) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if isinstance(default, int):
        if not (1 <= number <= MOST and number == int(number)):
            raise InputError(f"model.{name} is {quote(value)}: give a whole number from 1 to {MOST:,}.")
    elif name == "dropout":
        if not 0 <= number < 1:
            raise InputError(f"model.{name} is {quote(value)}: give a number in [0, 1).")
    elif not 0 < number < math.inf:
        raise InputError(f"model.{name} is {quote(value)}: give a number above 0.")


def require_heads(settings: Settings, *, even: bool) -> None:
    """Raises InputError if d_model is not divisible by the heads; with `even`, the width of a head must be even."""
    width, heads = settings["d_model"], settings["heads"]
    step = 2 * heads if even else heads
    if width % step:
        raise InputError(
            f"model.d_model {width} is not divisible into {heads} heads (model.heads)"
            f"{' of even width' if even else ''}; make it a multiple of {step}."
        )
