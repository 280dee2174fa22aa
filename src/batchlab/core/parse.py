"""What a person types, as numbers; each error says what is possible.

Amounts of memory are values of settings, so they raise the ValueError that validation reports. The others are values of
flags and raise InputError. Nothing is read as infinite, and every list and number has a stated maximum that no real
study meets: a slip of the keyboard is answered at once, rather than by a loop that never ends.

`pydantic.ByteSize` is not used, because it ignores what follows the first number: 1,5GiB is one byte there, and
16GiB,32GiB is 16 GiB.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

from batchlab.core.errors import InputError, quote

_BYTE_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 10**3, "mb": 10**6, "gb": 10**9}

MOST_BYTES = 2**50
LEAST_LIMIT = 2**20
"""Of a memory limit, in bytes: with less, a unit was forgotten."""

LEAST_RATE, MOST_RATE = 1e-12, 1e6
MOST_VALUES = 100
"""Of a list or range: batch sizes, learning rates."""

MOST_SAMPLES = 10**9
"""In a batch."""

MOST_SEEDS = 1000
MOST_RUNS = 1_000_000
MOST_WORKERS = 1024
MOST_TOKENS = 10**18
MOST_SECONDS = 100_000 * 3600.0

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def parse_bytes(given: object) -> int:
    """`"16GiB"`, `"700 MiB"`, `"1.5gb"` or a number of bytes, as bytes.

    Raises ValueError naming what is possible.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        count = given
    elif isinstance(given, str):
        count = _bytes(given)
    else:  # a number with a point, from TOML or JSON
        raise ValueError(f"{quote(given)} is not an amount of memory; write it like 16GiB, 700MiB or 1073741824")
    if not 1 <= count <= MOST_BYTES:
        raise ValueError(f"{quote(given)} is not an amount of memory from 1 byte to 1024TiB; write it like 16GiB")
    return count


def _bytes(text: str) -> int:
    if re.search(r"\d\s*[KMGT]i?b\s*$", text):
        raise ValueError(f"{quote(text)} may mean bits, as Gb does; write GB, GiB, MB or MiB for bytes")
    cleaned = text.strip().lower().replace(" ", "")
    number = cleaned.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        value = float(number) * _BYTE_UNITS[cleaned[len(number) :] or "b"]
    except (ValueError, KeyError):
        value = math.nan
    if math.isnan(value):
        raise ValueError(f"{quote(text)} is not an amount of memory; write it like 16GiB, 700MiB or 1073741824")
    return int(min(max(value, 0.0), 2.0 * MOST_BYTES))


def parse_memory_limit(given: object) -> int:
    """A limit as bytes, with a unit unless it is at least 1 MiB. Raises ValueError naming what is possible."""
    count = parse_bytes(given)
    if count < LEAST_LIMIT:
        raise ValueError(
            f"{quote(given)} is {count:,} bytes, less than the smallest limit, 1MiB; give a unit, like 16GiB or 700MiB"
        )
    return count


def headroom_bytes(headroom: str, limit: int) -> int:
    """Bytes of `"5%"` of a limit, or of an amount like `"512MiB"`. Raises ValueError naming what is possible."""
    text = headroom.strip()
    if text == "0":
        return 0
    if not text.endswith("%"):
        if text.isdecimal():
            raise ValueError(f"{quote(headroom)} has no unit; write it like 5%, 512MiB or 0")
        return parse_bytes(text)
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"{quote(headroom)} is not a share of the limit from 0% to below 100%")
    return math.ceil(share * limit)


def require_headroom(headroom: object) -> str:
    """The text itself where it is a headroom: `5%`, `512MiB` or `0`. Raises ValueError where it is not."""
    if headroom == 0 and not isinstance(headroom, bool):
        return "0"
    if not isinstance(headroom, str):
        raise ValueError(f"{quote(headroom)} is not a headroom; write it like 5%, 512MiB or 0")
    headroom_bytes(headroom, 1)
    return headroom


def parse_learning_rates(text: str) -> tuple[float, ...]:
    """`"1e-4,3e-4"` is a list, `"1e-4:3e-3"` a geometric range of 4 values, `"1e-4:3e-3:5"` one of 5.

    Raises InputError naming what is possible.
    """
    parts = text.split(":")
    if len(parts) == 1:
        return tuple(sorted({_learning_rate(part, text) for part in _listed(text, "Learning rates")}))
    if len(parts) > 3:
        raise _not_learning_rates(text, "too many colons")
    low, high = (_learning_rate(part, text) for part in parts[:2])
    if low >= high:
        raise InputError(f"Learning rates {quote(text)} run from {low:g} to {high:g}; give the lower end first.")
    count = _range_count(parts[2], text) if len(parts) == 3 else 4
    step = (high / low) ** (1 / (count - 1))
    rates = (low, *(float(f"{low * step**i:.3g}") for i in range(1, count - 1)), high)
    if list(rates) != sorted(set(rates)):
        raise InputError(f"Learning rates {quote(text)}: {count} values do not fit between {low:g} and {high:g}.")
    return rates


def parse_baseline(text: str) -> dict[str, object]:
    """`"128:3e-4:1.487"`: batch size, learning rate, loss to expect. Raises InputError saying how to write it."""
    parts = text.split(":")
    try:
        size, rate, loss = int(parts[0]), float(parts[1]), float(parts[2])
    except (ValueError, IndexError):
        size, rate, loss = 0, math.nan, math.nan
    if len(parts) != 3 or size < 1 or not (math.isfinite(rate) and math.isfinite(loss)):
        raise InputError(
            f"--baseline {quote(text)}: write batch size, learning rate and the loss to expect, as in 128:3e-4:1.487."
        )
    return {"batch_size": size, "learning_rate": rate, "loss": loss}


def parse_shares(text: str, option: str) -> tuple[float, ...]:
    """`"0.01,0.05"`: shares of a whole, each at least 0 and below 1, ascending. Raises InputError naming the first that
    is not."""
    return tuple(sorted({_share(part.strip(), text, option) for part in text.split(",")}))


def _share(part: str, text: str, option: str) -> float:
    try:
        share = float(part)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise InputError(
            f"{option} {quote(text)}: {quote(part, 40)} is not a share of a run, at least 0 and below 1; write 1 % as "
            "0.01."
        )
    return share


def _range_count(part: str, text: str) -> int:
    count = _int(part)
    if count is None or not 2 <= count <= MOST_VALUES:
        raise _not_learning_rates(text, f"{quote(part, 40)} is not a count from 2 to {MOST_VALUES}")
    return count


def _learning_rate(part: str, text: str) -> float:
    if not part.strip():
        raise _not_learning_rates(text, "a value is empty")
    try:
        rate = float(part)
    except ValueError:
        raise _not_learning_rates(text, f"{quote(part, 40)} is not a number") from None
    if not (math.isfinite(rate) and rate > 0):
        raise _not_learning_rates(text, f"{quote(part.strip(), 40)} is not a positive number")
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise _not_learning_rates(text, f"{rate:g} is not between {LEAST_RATE:g} and {MOST_RATE:g}")
    return rate


def _not_learning_rates(text: str, problem: str) -> InputError:
    return InputError(
        f"Learning rates {quote(text)}: {problem}; write a list like 3e-4,1e-3,3e-3 or a range like 1e-4:3e-3 "
        "(or 1e-4:3e-3:5 for five values)."
    )


def parse_devices(text: str) -> tuple[int, ...]:
    """Numbers of devices, in ascending order: `"4"` or `"1,2,4"`. Raises InputError naming what is possible."""
    return tuple(sorted({parse_whole(part, "--devices", 1, MOST_WORKERS) for part in _listed(text, "--devices")}))


def is_open(text: str) -> bool:
    """Whether batch sizes go on until memory ends: `1:max`."""
    return text.strip().endswith(":max")


def parse_sizes(text: str) -> tuple[int, ...]:
    """`"1,8,32"` is a list, `"1:512"` every doubling from 1 to 512; the last value is always included.

    `"1:max"` is `(1,)`: where it ends is not known yet (`is_open`).

    Raises InputError naming what is possible.
    """
    if is_open(text):
        return (_size(text.strip().removesuffix(":max"), text),)
    parts = text.split(":")
    if len(parts) == 1:
        return tuple(sorted({_size(part, text) for part in _listed(text, "Batch sizes")}))
    if len(parts) != 2:
        raise _not_sizes(text, "too many colons")
    low, high = (_size(part, text) for part in parts)
    if low > high:
        raise InputError(f"Batch sizes {quote(text)} run from {low} down to {high}; give the smaller end first.")
    doublings = [low * 2**i for i in range((high // low).bit_length())]
    return tuple(sorted({*doublings, high}))


def _size(part: str, text: str) -> int:
    if not part.strip():
        raise _not_sizes(text, "a value is empty")
    size = _int(part)
    if size is None:
        raise _not_sizes(text, f"{quote(part.strip(), 40)} is not a whole number")
    if size < 1:
        raise _not_sizes(text, f"{quote(size, 40)} is less than one sample")
    if size > MOST_SAMPLES:
        raise _not_sizes(text, f"{quote(size, 40)} is more than {MOST_SAMPLES:,} samples")
    return size


def _not_sizes(text: str, problem: str) -> InputError:
    return InputError(
        f"Batch sizes {quote(text)}: {problem}; write a list like 1,8,32 or a range of doublings like 1:512 or 1:max."
    )


def _listed(text: str, what: str) -> list[str]:
    parts = text.split(",")
    if len(parts) > MOST_VALUES:
        raise InputError(f"{what} {quote(text)} are {len(parts):,} values; give at most {MOST_VALUES}.")
    return parts


def _int(text: str) -> int | None:
    """A whole number; None for any other text, and for more digits than Python reads."""
    try:
        return int(text)
    except ValueError:
        return None


def parse_whole(text: str, flag: str, least: int, most: int) -> int:
    """A whole number in a range. Raises InputError naming the flag and the range."""
    number = _int(text)
    if number is None or not least <= number <= most:
        raise InputError(f"{flag} {quote(text)}: give a whole number from {least:,} to {most:,}.")
    return number


def parse_count(text: str, flag: str) -> int:
    """A count written as 262144, 262_144, 50M, 1.5B, 2T or 4e6.

    Raises InputError naming the flag and what is possible.
    """
    match = re.fullmatch(r"([0-9_.]+(?:e[0-9]{1,6})?)\s*([kmbt]?)", text.strip().lower(), re.ASCII)
    try:
        value, factor = (Decimal(match[1]), _FACTORS[match[2]]) if match else (Decimal(0), 1)
    except InvalidOperation:
        value, factor = Decimal(0), 1
    if value > MOST_TOKENS // factor:
        raise InputError(f"{flag} {quote(text)} is more than 1,000,000T; give a smaller number, like 50M or 1.5B.")
    count = value * factor
    if count < 1 or count != int(count):
        raise InputError(f"{flag} {quote(text)} is not a whole number; write it like 262144, 50M or 1.5B.")
    return int(count)


def parse_duration(text: str, option: str = "--time-budget") -> float:
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
        raise InputError(f"{option} {quote(text)} is not a length of time; write it like 3h, 45m or 1h30m.")
    if seconds > MOST_SECONDS:
        raise InputError(f"{option} {quote(text)} is more than 100,000h; give a shorter time, like 3h or 45m.")
    return seconds
