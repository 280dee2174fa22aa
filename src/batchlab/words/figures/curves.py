"""What the plots over training say: loss, learning rate and gradient norms against tokens seen."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.runs import first_runs
from batchlab.core.format import format_learning_rate, format_percent, format_plural
from batchlab.words.units import Units

VALIDATION = "Validation loss during training"
TRAINING = "Training loss and learning rate"
GRADIENTS = "Gradient norm during training"

NO_EVALUATIONS = "The runs recorded no evaluations, so there are no curves to draw."
NO_TRAINING_LOSS = "The runs recorded no training loss and no learning rate, so there is nothing to draw."
NO_GRADIENT_NORMS = "The runs recorded no gradient norms, because the task applies its own updates."

LOOK_FOR_VALIDATION = "A curve that rises again overfits or diverges."
LOOK_FOR_TRAINING = "Spikes, or a loss that rises again after warm-up: the learning rate is near its limit."
LOOK_FOR_GRADIENTS = (
    "Larger batches have smaller norms, because noise averages out. If the norm grows late in training, or most steps "
    "are clipped, clipping sets the effective learning rate."
)


def tokens_seen(units: Units) -> str:
    """The title of the axis of training progress."""
    return f"{units.name} seen"


def size_and_rate(global_batch_size: int, learning_rate: float | None) -> str:
    """`32 (1.0e-3)`: the name of a size's curve, under the legend title "batch (best LR)"."""
    return f"{global_batch_size:,} ({format_learning_rate(learning_rate)})"


def _one_line_per_size(sizes: int) -> str:
    return f"one line per batch size at the best learning rate tried ({format_plural(sizes, 'size')})"


def _cut(cut: bool) -> str:
    return " The start of the fall is above the plot." if cut else ""


def validation_caption(findings: Findings, lines: int, sizes: int, cut: bool, omitted: int = 0) -> str:
    """`cut`: the axis ends below the start of the curves. `omitted`: runs that are not drawn, the highest seeds."""
    left_out = f" {format_plural(omitted, 'run')} with higher seeds are not drawn." if omitted else ""
    return (
        f"{format_plural(lines, 'run')}, {_one_line_per_size(sizes)}. Fainter lines are further seeds.{left_out} "
        f"All sizes are evaluated on the same held-out set after the same {Units.of(findings).name}.{_cut(cut)}"
    )


def training_caption(
    findings: Findings, lines: int, sizes: int, most_means: int, longest_warmup: float, *, cut: bool
) -> str:
    """`most_means`: over how many stretches of a run the training loss is averaged at most."""
    share = format_percent(longest_warmup)
    warmup = f"The shaded part is the warm-up, the first {share} of the budget, the same number of "
    warmup += f"{Units.of(findings).name} for every size."
    if findings.warmups is not None:
        warmup = f"The shaded part is the longest of the warm-ups that are best at a size, {share} of the budget."
    if not longest_warmup:
        warmup = "There is no warm-up."
    return (
        f"n = {format_plural(lines, 'run')}, {_one_line_per_size(sizes)}, lowest seed. Training loss is averaged over "
        f"at most {most_means} intervals per run. {warmup}{_cut(cut)}"
    )


def gradients_caption(findings: Findings, sizes: int) -> str:
    clip = findings.experiment.optimizer.grad_clip
    clipping = (
        f"The dashed line is the clipping threshold, {clip:g}, which clipped {clipped_shares(findings)}"
        if clip
        else "Gradients were not clipped"
    )
    runs = format_plural(sizes, "run")
    return f"n = {runs}, {_one_line_per_size(sizes)}, lowest seed. Norms before clipping. {clipping}."


def clipped_shares(findings: Findings) -> str:
    """`8 % (batch 4) to 31 % (batch 64) of the steps`, over one run per size at its best learning rate."""
    shares = [
        (run.clipped_fraction, row.global_batch_size)
        for row, run in first_runs(findings.surface)
        if run.clipped_fraction is not None
    ]
    if not shares:
        return "an unknown share of the steps"
    (low, low_at), (high, high_at) = min(shares), max(shares)
    if f"{low:.0%}" == f"{high:.0%}":
        return f"{low * 100:.0f} % of the steps at {format_plural(len(shares), 'size')}"
    return f"{low * 100:.0f} % (batch {low_at:,}) to {high * 100:.0f} % (batch {high_at:,}) of the steps"
