"""What the plots of the critical batch size say."""

from __future__ import annotations

from batchlab.analysis.critical.finding import CriticalFinding
from batchlab.core.format import format_count, format_loss, format_plural
from batchlab.words.critical import format_source
from batchlab.words.units import Units

ALONG_TRAINING = "Noise scale and critical batch size along training"

NO_NOISE_SCALE = "No run has a window of sampled steps in which the noise scale is determined."
NO_TARGET = "Steps to a loss need runs at three budgets; batchlab critical STUDY --run trains them."


def along_training_caption(windows: int, sizes: int) -> str:
    """`windows` of sampled steps in the runs of `sizes`."""
    return (
        f"{format_plural(windows, 'window')} of sampled steps at {format_plural(sizes, 'batch size')}, each at its "
        "best learning rate, lowest seed. Bars are 95 % intervals; windows without an upper limit are not drawn. "
        "Horizontal lines: B_crit from steps to a loss, for the whole run. Triangles: sizes that branches from there "
        "accepted or rejected."
    )


def cost_title(units: Units) -> str:
    return f"{units.name.capitalize()}, steps and time to the same loss"


def cost_caption(critical: CriticalFinding, units: Units, timed: bool) -> str:
    """`timed`: the plot has times on devices."""
    budgets = ", ".join(format_count(budget) for budget in critical.budgets)
    text = (
        f"To validation loss {format_loss(critical.target)}, {format_source(critical)} ({budgets} {units.name}); each "
        "size at its best learning rate for each."
    )
    if timed:
        text += " Time at the measured speeds, with the batch shared equally and without communication."
    return text
