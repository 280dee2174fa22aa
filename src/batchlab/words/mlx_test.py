"""What the checks of `batchlab doctor --gpu` found of MLX's device, a verdict and a sentence each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from batchlab.core.format import format_bytes

Verdict = Literal["ok", "differs", "fail"]
"""differs: it works, and batchlab's prediction or promise does not hold here."""

Found = tuple[Verdict, str]

SLOWER = 3.0
"""A block of memory that takes this many times as long to write as the first was probably swapped."""


def describe_mlx_check(check: Mapping[str, Any]) -> Found:
    """The verdict of one check, and what it is based on."""
    if "error" in check:
        return "fail", f"it ended with {check['error']}"
    return _DESCRIBED[check["check"]](check["numbers"])


def _device(found: Mapping[str, Any]) -> Found:
    usable = format_bytes(found["usable_bytes"]) if found["usable_bytes"] else "unknown memory"
    if found["recommended_bytes"] is None:
        return "differs", f"{found['name']}, {usable}, {found['framework']}: no Metal device, so MLX uses the CPU"
    recommended = format_bytes(found["recommended_bytes"])
    return "ok", f"{found['name']}, {usable} of the recommended {recommended} for a run, {found['framework']}"


def _precisions(found: Mapping[str, Any]) -> Found:
    numbers = found["precisions"]
    parts = [f"{name}: {one['tokens_per_second']:,.0f} tokens/s" for name, one in numbers.items()]
    broken = [name for name, one in numbers.items() if one["loss"] is None]
    return ("fail", f"the loss is not finite in {', '.join(broken)}") if broken else ("ok", "; ".join(parts))


def _resume(found: Mapping[str, Any]) -> Found:
    if found["same_bits"]:
        return "ok", f"{found['steps']} steps after a restart have the same bits"
    difference = found["largest_difference"]
    return "differs" if difference < 1e-3 else "fail", f"losses after a restart differ by up to {difference:.1e}"


def _limit(found: Mapping[str, Any]) -> Found:
    limit = format_bytes(found["limit_bytes"])
    if not found["fits"]:
        return "fail", f"a limit of {limit} refuses {limit}"
    return ("fail", f"a limit of {limit} allows more") if found["fits_more"] else ("ok", f"a limit of {limit} holds")


def _working_set(found: Mapping[str, Any]) -> Found:
    if found["recommended_bytes"] is None:
        return "ok", "not tried: only Metal recommends one"
    slower = found["slowest_seconds"] / found["first_seconds"]
    where = format_bytes(found["slowest_at_bytes"])
    if slower < SLOWER:
        return "ok", f"memory is as fast up to the recommended {format_bytes(found['recommended_bytes'])}"
    return "differs", f"memory is {slower:.0f} times as slow at {where}, below what is recommended; give --memory-limit"


_DESCRIBED: dict[str, Callable[[Mapping[str, Any]], Found]] = {
    "device": _device,
    "precisions": _precisions,
    "resume": _resume,
    "limit": _limit,
    "working_set": _working_set,
}
