"""What a person types, as numbers; each error says what is possible.

Amounts of memory are values of settings, so they raise the ValueError that validation reports. The others are values of
flags and raise InputError.
"""

from __future__ import annotations

import math
import re

from batchlab.core.errors import InputError

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
    """Bytes of `"5%"` of a limit, or of an amount like `"512MiB"`. Raises ValueError naming what is possible."""
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
    """The text itself where it is a headroom: `5%`, `512MiB` or `0`. Raises ValueError where it is not."""
    if isinstance(headroom, int) and not isinstance(headroom, bool):
        headroom = str(headroom)
    if not isinstance(headroom, str):
        raise ValueError(f"{headroom!r} is not a headroom; write it like 5%, 512MiB or 0")
    headroom_bytes(headroom, 1)
    return headroom


def parse_learning_rates(text: str) -> tuple[float, ...]:
    """`"1e-4,3e-4"` is a list, `"1e-4:3e-3"` a geometric range of 4 values, `"1e-4:3e-3:5"` one of 5.

    Raises InputError naming what is possible.
    """
    parts = text.split(":")
    if len(parts) == 1:
        return tuple(sorted({_learning_rate(part, text) for part in text.split(",")}))
    if len(parts) > 3:
        raise _not_learning_rates(text, "too many colons")
    low, high = (_learning_rate(part, text) for part in parts[:2])
    if low >= high:
        raise InputError(f"Learning rates {text!r} run from {low:g} to {high:g}; give the lower end first.")
    count = 4
    if len(parts) == 3:
        if not parts[2].strip().isdecimal() or int(parts[2]) < 2:
            raise _not_learning_rates(text, f"{parts[2]!r} is not a count of at least 2")
        count = int(parts[2])
    step = (high / low) ** (1 / (count - 1))
    rates = (low, *(float(f"{low * step**i:.3g}") for i in range(1, count - 1)), high)
    if list(rates) != sorted(set(rates)):
        raise InputError(f"Learning rates {text!r}: {count} values do not fit between {low:g} and {high:g}.")
    return rates


def _learning_rate(part: str, text: str) -> float:
    if not part.strip():
        raise _not_learning_rates(text, "a value is empty")
    try:
        rate = float(part)
    except ValueError:
        raise _not_learning_rates(text, f"{part!r} is not a number") from None
    if not (math.isfinite(rate) and rate > 0):
        raise _not_learning_rates(text, f"{part.strip()} is not a positive number")
    return rate


def _not_learning_rates(text: str, problem: str) -> InputError:
    return InputError(
        f"Learning rates {text!r}: {problem}; write a list like 3e-4,1e-3,3e-3 or a range like 1e-4:3e-3 "
        "(or 1e-4:3e-3:5 for five values)."
    )


def parse_sizes(text: str) -> tuple[int, ...]:
    """`"1,8,32"` is a list, `"1:512"` every doubling from 1 to 512; the last value is always included.

    Raises InputError naming what is possible.
    """
    parts = text.split(":")
    if len(parts) == 1:
        return tuple(sorted({_size(part, text) for part in text.split(",")}))
    if len(parts) != 2:
        raise _not_sizes(text, "too many colons")
    low, high = (_size(part, text) for part in parts)
    if low > high:
        raise InputError(f"Batch sizes {text!r} run from {low} down to {high}; give the smaller end first.")
    doublings = [low * 2**i for i in range((high // low).bit_length())]
    return tuple(sorted({*doublings, high}))


def _size(part: str, text: str) -> int:
    cleaned = part.strip()
    if not cleaned:
        raise _not_sizes(text, "a value is empty")
    try:
        size = int(cleaned)
    except ValueError:
        raise _not_sizes(text, f"{cleaned!r} is not a whole number") from None
    if size < 1:
        raise _not_sizes(text, f"{size} is less than one sample")
    return size


def _not_sizes(text: str, problem: str) -> InputError:
    return InputError(f"Batch sizes {text!r}: {problem}; write a list like 1,8,32 or a range of doublings like 1:512.")


def parse_count(text: str, flag: str) -> int:
    """A count written as 262144, 262_144, 50M, 1.5B or 4e6. Raises InputError naming the flag and what is possible."""
    match = re.fullmatch(r"([0-9_.]+(?:e[0-9]+)?)\s*([kmb]?)", text.strip().lower())
    factor = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
    try:
        value = float(match[1].replace("_", "")) * factor[match[2]] if match else 0
    except ValueError:
        value = 0
    if value < 1 or value != int(value):
        raise InputError(f"{flag} {text} is not a whole number; write it like 262144, 50M or 1.5B.")
    return int(value)


def parse_duration(text: str) -> float:
    """Seconds of `3h`, `45m`, `90s` or `1h30m`. Raises InputError for anything else."""
    match = re.fullmatch(
        r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower()
    )
    seconds = (
        sum(float(part) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True) if part)
        if match
        else 0
    )
    if seconds <= 0:
        raise InputError(f"--time-budget {text} is not a length of time; write it like 3h, 45m or 1h30m.")
    return seconds
