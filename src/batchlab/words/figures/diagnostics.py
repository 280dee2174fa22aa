"""What the plots of diagnostic snapshots say: what was measured, and what to look for."""

from __future__ import annotations

from typing import NamedTuple

from batchlab.analysis.findings import Findings
from batchlab.core.format import format_list, format_plural
from batchlab.words.units import Units


class Text(NamedTuple):
    """The words of one plot: its title, what is plotted, and what would be remarkable."""

    title: str
    plotted: str
    look_for: str


SAME_STEPS = Text(
    "Loss, gradient and update at the same steps",
    "The gradient norm is taken before clipping, the effective step is the mean |update| ÷ learning rate, and the "
    "update ratio is ‖update‖ ÷ ‖weights‖.",
    "If the loss changes suddenly while the effective step rises and the gradient norm stays flat, suspect the "
    "optimizer's moments; if the gradient norm rises too, suspect the loss itself. An update ratio far above 1e-2 "
    "tends to be unstable; far below 1e-4, little is learned.",
)
LAYER_GRADIENTS = Text(
    "Gradient norm by layer",
    "L2 norm over the parameters of one block, before clipping.",
    "If the first and last blocks drift orders of magnitude apart, or one falls to nothing, the gradient does not "
    "propagate.",
)
LAYER_UPDATES = Text(
    "Update ratio by layer",
    "‖update‖ ÷ ‖weights‖ of one block in one step.",
    "Blocks with very different update ratios are poorly served by a single learning rate.",
)
ACTIVATIONS = Text(
    "Activation size",
    "Root mean square of a block's outputs, on held-out samples that are the same for every run, in evaluation mode.",
    "Growth that does not level off, usually in the last block first, precedes overflow and loss spikes.",
)
NORM_LAYERS = Text(
    "Gradients of the norm layers",
    "L2 norm over the weights (gains), and over the biases, of all norm layers.",
    "Jumps here show an instability early, because every activation passes through these few parameters.",
)
ATTENTION = Text(
    "Attention entropy",
    "In nats, mean over heads. Dotted: the head with the lowest entropy. Dashed: uniform attention. On held-out "
    "samples that are the same for every run, in evaluation mode.",
    "A steep and lasting fall means that heads attend to fewer and fewer positions; near 0 they have collapsed.",
)
HEADS = Text(
    "Attention entropy of each head",
    "",
    "Single heads that fall away from the others specialise. If all of them fall together, the layer attends to fewer "
    "and fewer positions.",
)
PHASES = Text(
    "Share of a step's time",
    "",
    "A large share of data loading means that the device waits for samples. The optimizer runs once per step, so its "
    "share falls as the batch grows.",
)
PHASES_AXIS = "share of a step (%)"
PHASE_NAMES = {"data": "data loading", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}


def snapshots_caption(findings: Findings, text: Text, lines: int) -> str:
    """`lines`: runs that have readings."""
    steps = format_plural(len(findings.diagnostics.snapshots), "step")
    return (
        f"{text.plotted} n = {format_plural(lines, 'run')}, one per batch size at the best learning rate tried, read "
        f"at up to {steps} that end at the same numbers of {Units.of(findings).name}."
    )


def heads_caption(layer: str, global_batch_size: int) -> str:
    return f"{layer}, in nats, n = 1 run: batch {global_batch_size:,} at its best learning rate."


def phases_caption(sizes: list[int]) -> str:
    return (
        "Shares of the medians over the steps with a diagnostic snapshot, n = "
        f"{format_plural(len(sizes), 'run')} at batch {format_list(sizes)}. Runs that train at the same time slow each "
        "other down; for seconds, see the measured speed. The optimizer includes clipping."
    )
