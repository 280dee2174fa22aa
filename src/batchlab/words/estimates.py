"""Estimates of the critical batch size as they stand in sentences and tables: a value with its interval, or a limit."""

from __future__ import annotations

from batchlab.analysis.critical.branches import BranchFinding
from batchlab.analysis.critical.noise_scale import NoiseScale
from batchlab.analysis.critical.sign_noise_scale import SignNoiseScale
from batchlab.analysis.critical.steps_finding import CriticalBatch, Definition
from batchlab.analysis.values import Interval
from batchlab.core.format import NONE, format_size

CANNOT_TELL = "cannot tell"

DEFINITION = {
    Definition.TWICE_STEPS: "B_crit (2× steps)",
    Definition.TWICE_SAMPLES: "B_crit (2× samples)",
    Definition.OVERHEAD_20: "B_crit (20 % overhead)",
}


def format_sizes(interval: Interval) -> str:
    """`41 [28, 66]`."""
    if interval.low is None or interval.high is None:
        return format_size(interval.value)
    return f"{format_size(interval.value)} [{format_size(interval.low)}, {format_size(interval.high)}]"


def format_noise(found: NoiseScale) -> str:
    """`41 [28, 66]`, `at least 28` or `undetermined`."""
    if found.value is not None:
        return format_sizes(found.value)
    return f"at least {format_size(found.at_least)}" if found.at_least is not None else "undetermined"


def format_signs(found: SignNoiseScale | None) -> str:
    """The bracket of the noise scale of sign updates: `28 – 66`, `at least 28` or `undetermined`."""
    if found is None:
        return NONE
    if found.low is None:
        return "undetermined"
    if found.high is None:
        return f"at least {format_size(found.low)}"
    return f"{format_size(found.low)} – {format_size(found.high)}"


def format_critical(found: CriticalBatch | None) -> str:
    """`41 [28, 66]`, `at least 28`, `at most 66` or `cannot tell`."""
    if found is None:
        return CANNOT_TELL
    if found.value is not None:
        return format_sizes(found.value)
    limits = []
    if found.at_least is not None:
        limits.append(f"at least {format_size(found.at_least)}")
    if found.at_most is not None:
        limits.append(f"at most {format_size(found.at_most)}")
    return ", ".join(limits) or CANNOT_TELL


def format_branches(found: BranchFinding) -> str:
    """`at least 32 and below 64`, one of the two, or `cannot tell`."""
    if found.status == "cannot_tell":
        return CANNOT_TELL
    at_least = f"at least {format_size(found.at_least)}" if found.at_least is not None else ""
    below = f"below {format_size(found.below)}" if found.below is not None else ""
    return " and ".join(text for text in (at_least, below) if text)
