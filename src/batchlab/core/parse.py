"""What a person types, as numbers: amounts of memory and headroom. ValueError says what is possible."""

from __future__ import annotations

import math

_BYTE_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_bytes(text: object) -> int:
    """`"16GiB"`, `"700 MiB"`, `"1.5gb"` or a number of bytes, as bytes.

    Raises ValueError naming what is possible.
    """
    if isinstance(text, int):
        return text
    if not isinstance(text, str):  # a number with a point, from TOML or JSON
        raise ValueError(f"{text!r} is not an amount of memory; write it like 16GiB, 700MiB or 1073741824")
    cleaned = text.strip().lower().replace(" ", "")
    number = cleaned.rstrip("abcdefghijklmnopqrstuvwxyz")
    suffix = cleaned[len(number) :] or "b"
    try:
        value = float(number) * _BYTE_UNITS[suffix]
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not an amount of memory; write it like 16GiB, 700MiB or 1073741824") from None
    if not (math.isfinite(value) and value >= 1):
        raise ValueError(f"{text!r} is not a positive amount of memory; write it like 16GiB or 700MiB")
    return int(value)


def headroom_bytes(headroom: str, limit: int) -> int:
    """Bytes of `"5%"` of a limit, or of an amount like `"512MiB"`. ValueError naming what is possible."""
    text = headroom.strip()
    if not text.endswith("%"):
        return 0 if text == "0" else parse_bytes(text)
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"{headroom!r} is not a share of the limit from 0% to below 100%")
    return math.ceil(share * limit)


def require_headroom(headroom: object) -> str:
    """The text itself where it is a headroom: `5%`, `512MiB` or `0`; else ValueError."""
    if isinstance(headroom, int) and not isinstance(headroom, bool):
        headroom = str(headroom)
    if not isinstance(headroom, str):
        raise ValueError(f"{headroom!r} is not a headroom; write it like 5%, 512MiB or 0")
    headroom_bytes(headroom, 1)
    return headroom
