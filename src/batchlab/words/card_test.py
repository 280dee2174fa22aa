"""What the checks of `batchlab doctor --gpu` found, a verdict and a sentence each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from batchlab.core.format import format_bytes, format_percent

Verdict = Literal["ok", "differs", "fail"]
"""differs: it works, and batchlab's prediction or promise does not hold here."""

Found = tuple[Verdict, str]

ALLOCATED, RESERVED = 0.05, 0.08
"""Largest errors of a trace, relative, that count as agreement."""

TERA = 1e12


def describe_card_check(check: Mapping[str, Any]) -> Found:
    """The verdict of one check, and what it is based on."""
    if "error" in check:
        return "fail", f"it ended with {check['error']}"
    return _DESCRIBED[check["check"]](check["numbers"])


def where_written(file: Path) -> str:
    """The last line: what to do with the file."""
    return f"written to {file}: please attach it to an issue, whatever it says"


def _card(found: Mapping[str, Any]) -> Found:
    return "ok", (
        f"{found['name']}, {format_bytes(found['free_bytes'])} of {format_bytes(found['memory_bytes'])} free, compute "
        f"capability {found['compute_capability']}, driver {found['driver'] or 'unknown'}, torch {found['torch']}"
    )


def _allocator(found: Mapping[str, Any]) -> Found:
    if not found["differing"]:
        return "ok", f"predicted exactly at {found['steps']} of {found['steps']} requests"
    why = " because PYTORCH_ALLOC_CONF changes its rules" if found["configured"] else ""
    return "differs", f"not as predicted at {found['differing']} of {found['steps']} requests{why}"


def _traces(found: Mapping[str, Any]) -> Found:
    parts, close = [], True
    for name, errors in found["errors"].items():
        if errors is None:
            parts.append(f"{name}: cannot be traced")
            close = False
            continue
        allocated, reserved = errors["allocated"], errors["reserved"]
        close &= abs(allocated) <= ALLOCATED and abs(reserved) <= RESERVED
        parts.append(f"{name}: allocated {_signed(allocated)}, reserved {_signed(reserved)}")
    return "ok" if close else "differs", "error of the trace: " + "; ".join(parts)


def _precisions(found: Mapping[str, Any]) -> Found:
    parts, finite = [], True
    for name, numbers in found["precisions"].items():
        finite &= numbers["loss"] is not None
        peak = f"{numbers['peak_flops'] / TERA:.3g} TFLOP/s" if numbers["peak_flops"] else "no products"
        parts.append(f"{name}: {peak}, {numbers['tokens_per_second']:,.0f} tokens/s")
    return "ok" if finite else "fail", "; ".join(parts) + ("" if finite else "; a loss is not finite")


def _resume(found: Mapping[str, Any]) -> Found:
    if found["same_bits"]:
        return "ok", f"{found['steps']} steps after a restart have the same bits"
    difference = found["largest_difference"]
    verdict: Verdict = "differs" if difference < 1e-3 else "fail"
    return verdict, f"losses after a restart differ by up to {difference:.1e}, relative"


def _ranks(found: Mapping[str, Any]) -> Found:
    cards = found["cards"]
    if cards < 2:
        return "ok", "one card, so no run can be shared"
    size, milliseconds = format_bytes(found["bytes"]), 1000 * found["seconds"]
    if not found["right"]:
        return "fail", f"{cards} cards add up {size} to a wrong sum"
    return "ok", f"{cards} cards add up {size} in {milliseconds:.3g} ms"


def _limit(found: Mapping[str, Any]) -> Found:
    if found["fits"] and not found["fits_more"]:
        return "ok", "a limit of 64 MiB allows 64 MiB and not 66"
    return "fail", "a limit of 64 MiB refuses 64 MiB" if not found["fits"] else "a limit of 64 MiB allows 66 MiB"


def _out_of_memory(found: Mapping[str, Any]) -> Found:
    if not found["recognised"] or not found["trains_again"]:
        what = "it trains on" if found["recognised"] else "the error is recognised"
        return "fail", f"a failed allocation was tried, and it is not so that {what}"
    if found["lost_bytes"]:
        return "differs", f"recognised, and training goes on; {format_bytes(found['lost_bytes'])} were not given back"
    return "ok", "recognised; training goes on, and all memory was given back"


def _host_memory_fallback(found: Mapping[str, Any]) -> Found:
    free = format_bytes(found["free_bytes"])
    if found["falls_back"]:
        return "differs", f"more than the {free} that are free can be allocated, so the host's memory is used as well"
    return "ok", f"allocations end at the {free} that are free"


def _signed(share: float) -> str:
    return ("+" if share >= 0 else "") + format_percent(share)


_DESCRIBED: dict[str, Callable[[Mapping[str, Any]], Found]] = {
    "card": _card,
    "allocator": _allocator,
    "traces": _traces,
    "precisions": _precisions,
    "resume": _resume,
    "ranks": _ranks,
    "limit": _limit,
    "out_of_memory": _out_of_memory,
    "host_memory_fallback": _host_memory_fallback,
}
