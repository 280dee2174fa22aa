"""What to look at before and during a run from a plan, in words."""

from __future__ import annotations

from collections.abc import Mapping

from batchlab.core.batch import Unit
from batchlab.core.format import format_bytes, format_loss, format_plural

CHECKS: Mapping[str, str] = {
    "data": "The training data is the study's: the same digest.",
    "code": "The task's source files are as they were in the study; after an edit the measured numbers may not hold.",
    "batchlab": "The same version of batchlab as in the study.",
    "framework": "The same version of the framework as in the study.",
    "devices": "This many devices are available, and no other program uses them.",
    "memory": "Each device has this much free memory.",
    "disk": "The disk has room for the checkpoints and the weights.",
    "locks": "The file system of the run's folder has working locks, so that no second process writes it.",
}
"""The items of a plan's checklist."""


def describe_speed_step(step: int, low: float | None, high: float, unit: Unit, devices: int) -> str:
    """The speed to expect. `low` None: this number of devices was not measured, only one of them."""
    if low is None:
        share = "this batch" if devices == 1 else f"{devices} devices that lose nothing to communication"
        return f"After step {step:,}: at most about {high:,.0f} {unit.value}/s, as computed for {share}."
    return f"After step {step:,}: {low:,.0f} to {high:,.0f} {unit.value}/s, as when it was measured alone."


def describe_predicted_speed(step: int, speed: float, unit: Unit, devices: int) -> str:
    """The speed to expect of devices that were calibrated."""
    return f"After step {step:,}: at most about {speed:,.0f} {unit.value}/s, as predicted for these {devices} devices."


def describe_memory_step(step: int, peak: int) -> str:
    """The memory to expect."""
    return f"After step {step:,}: at most {format_bytes(peak)} on each device, the peak of the study's runs."


def describe_curve_step(step: int, low: float, high: float, n: int) -> str:
    """The validation loss to expect."""
    between = format_loss(low) if n == 1 else f"{format_loss(low)} to {format_loss(high)}"
    return (
        f"After step {step:,}: validation loss near {between}, as in the study ({format_plural(n, 'run')}). Far above "
        "it, stop and compare data, precision and learning rate with the plan."
    )
