"""Each kind of flaw in somebody's table: what is wrong, the arithmetic that shows it, and what to do."""

from __future__ import annotations

from typing import assert_never

from batchlab.analysis.audit.flaw import (
    BatchDisagrees,
    BestAtEdge,
    BeyondMemory,
    Contradiction,
    EqualSteps,
    Flaw,
    GapBelowMemoryLimit,
    LargerIsSlower,
    LearningRateNotTuned,
    NoLoss,
    NoOptimizerInMemory,
    OneSeed,
    OptimizerStateWrong,
    StepsInconsistent,
    TokensDisagree,
    TooFewSteps,
    TrainBelowValidation,
    TrainingLossJudged,
    UnequalTokens,
    WarmupSharesDiffer,
    WithinNoise,
)
from batchlab.analysis.audit.table import Quantity
from batchlab.core.format import (
    format_bytes,
    format_count,
    format_learning_rate,
    format_loss,
    format_percent,
    format_plural,
)

SMALLEST_GAP = 0.001
"""Share of the loss below which a gap is told as less than that."""


def describe_flaw(flaw: Flaw) -> tuple[str, str, str]:
    """(what is wrong, the arithmetic, the remedy), one or two sentences each."""
    match flaw:
        case TokensDisagree() | StepsInconsistent() | EqualSteps() | UnequalTokens() | BatchDisagrees():
            return _budget(flaw)
        case WarmupSharesDiffer() | TooFewSteps() | Contradiction() | NoLoss():
            return _rows(flaw)
        case LearningRateNotTuned() | BestAtEdge() | OneSeed() | WithinNoise():
            return _choice(flaw)
        case TrainingLossJudged() | TrainBelowValidation():
            return _losses(flaw)
        case BeyondMemory() | OptimizerStateWrong() | LargerIsSlower() | GapBelowMemoryLimit() | NoOptimizerInMemory():
            return _device(flaw)
    raise TypeError(flaw)


def _budget(
    flaw: TokensDisagree | StepsInconsistent | EqualSteps | UnequalTokens | BatchDisagrees,
) -> tuple[str, str, str]:
    match flaw:
        case TokensDisagree(_, steps, per_step, tokens, (low, high)):
            times = f"{low:.3g}" if round(low, 2) == round(high, 2) else f"{low:.3g} to {high:.3g}"
            return (
                "Steps × batch size × sequence length is not the number of tokens that is stated.",
                f"{steps:,.0f} steps × {per_step:,.0f} tokens = {format_count(steps * per_step)}, but "
                f"{format_count(tokens)} are stated, {times} times as many.",
                "Find out what was counted: logged rows are often taken for optimizer updates. Count updates, or "
                "correct the budget; no argument from the number of updates holds until then.",
            )
        case StepsInconsistent(_, (few, few_steps), (many, many_steps), factor):
            return (
                "Batch sizes saw different amounts of data.",
                f"Batch {many:,.0f} × {many_steps:,.0f} steps is {factor:.3g} times batch {few:,.0f} × "
                f"{few_steps:,.0f} steps.",
                "Train every size on the same number of samples, or compare along tokens.",
            )
        case EqualSteps(_, steps, smallest, largest, factor):
            return (
                "Every batch size trained for the same number of steps, not of tokens.",
                f"With {steps:,.0f} steps each, batch {largest:,.0f} saw {factor:.3g} times the data of batch "
                f"{smallest:,.0f}.",
                "Give every size the same token budget. Equal steps favor large batches whatever their quality.",
            )
        case UnequalTokens(_, (few, low), (many, high), factor):
            return (
                "Batch sizes that are compared saw different numbers of tokens.",
                f"Batch {many:,.0f} saw {format_count(high)}, {factor:.3g} times the {format_count(low)} of batch "
                f"{few:,.0f}.",
                "Compare them at the same number of tokens, in runs whose schedule ends there.",
            )
        case BatchDisagrees(_, product, given):
            return (
                "Micro-batch × accumulation × devices is not the global batch size.",
                f"The product is {product:,.0f}; the table says {given:,.0f}.",
                "Correct one of the columns; tokens per step follow from the product.",
            )
    assert_never(flaw)


def _rows(flaw: WarmupSharesDiffer | TooFewSteps | Contradiction | NoLoss) -> tuple[str, str, str]:
    match flaw:
        case WarmupSharesDiffer(_, (low, least), (high, most)):
            return (
                "Warm-up takes a different share of the run at different batch sizes.",
                f"It takes {format_percent(least)} of the updates at batch {low:,.0f} and {format_percent(most)} at "
                f"batch {high:,.0f}.",
                "Give warm-up in tokens, or as a share of the run; otherwise the schedule differs with the batch size.",
            )
        case TooFewSteps(lines, steps, needed):
            return (
                f"{format_plural(len(lines), 'run')} had too few updates to be judged.",
                f"The fewest are {steps:,.0f}; below {needed} a loss says more of the schedule than of the batch size.",
                "Leave these rows out of the comparison, or train longer.",
            )
        case Contradiction(_, batch, (low, high)):
            return (
                "Rows of the same batch size, learning rate and seed have different losses.",
                f"Batch {batch:,.0f} has {format_loss(low)} and {format_loss(high)}.",
                "Find out what differs between the runs and add it as a column, or remove the wrong row.",
            )
        case NoLoss(lines):
            return (
                f"{format_plural(len(lines), 'row')} that should have completed {'have' if len(lines) > 1 else 'has'} "
                "no loss.",
                "A run without a loss is neither a failure nor a result.",
                "Say how it ended, for example in a column called status.",
            )
    assert_never(flaw)


def _choice(flaw: LearningRateNotTuned | BestAtEdge | OneSeed | WithinNoise) -> tuple[str, str, str]:
    match flaw:
        case LearningRateNotTuned(_, sizes, rate):
            return (
                "One learning rate was used for every batch size, so this does not compare batch sizes.",
                f"All {sizes} sizes were trained at {format_learning_rate(rate)}; the best rate changes with the batch "
                "size, and each size is judged by how well that rate suits it.",
                "Try at least three learning rates at every batch size and compare the best ones.",
            )
        case BestAtEdge(_, "batch", side, value):
            return (
                f"The lowest loss is at the {_extreme(side)} batch size that was tried.",
                f"Batch {value:,.0f} is best, and nothing beyond it was tried: the best may lie there.",
                f"Try a {'smaller' if side == 'low' else 'larger'} batch size.",
            )
        case BestAtEdge(_, _, side, value, batch):
            return (
                f"At the best batch size the {_extreme(side, 'lowest', 'highest')} learning rate was the best.",
                f"At batch {batch or 0:,.0f} it is {format_learning_rate(value)}, with nothing tried beyond it.",
                f"Try a {'lower' if side == 'low' else 'higher'} learning rate there.",
            )
        case OneSeed(_, rows, gap):
            small = gap is not None and gap < SMALLEST_GAP
            apart = f"less than {format_percent(SMALLEST_GAP)}" if small else format_percent(gap or 0.0)
            best = "" if gap is None else f" The two best batch sizes differ by {apart} of the loss."
            return (
                "No configuration was repeated with another seed, so nothing says how much chance changes a loss.",
                f"{format_plural(rows, 'row')}, each one run.{best}",
                "Repeat the two best batch sizes with at least three more seeds before naming a winner.",
            )
        case WithinNoise(_, best, other, difference, half, seeds):
            return (
                f"The two best batch sizes are within noise of each other: {best:,.0f} and {other:,.0f}.",
                f"They differ by {format_loss(difference)}, ± {format_loss(half)} with 95 % confidence "
                f"({format_plural(seeds, 'seed')}).",
                "Call them tied and take the faster one, or add seeds.",
            )
    assert_never(flaw)


def _extreme(side: str, low: str = "smallest", high: str = "largest") -> str:
    return low if side == "low" else high


def _losses(flaw: TrainingLossJudged | TrainBelowValidation) -> tuple[str, str, str]:
    match flaw:
        case TrainingLossJudged(_, quantity):
            last = quantity is Quantity.LAST_LOSS
            return (
                "Batch sizes can only be compared by a training loss here"
                f"{', maybe that of the last batch' if last else ''}.",
                "The last batch of a small batch size is a noisier sample, and a training loss rewards memorising.",
                "Compare the loss on held-out data, the same for every run.",
            )
        case TrainBelowValidation(_, batch, gap):
            return (
                "Some validation losses are below the training losses.",
                f"At batch {batch:,.0f} by {format_loss(-gap)}. The two are not measured alike: a training loss is of "
                "earlier weights, with dropout, or of another batch.",
                "Do not read the gap as generalisation or as less overfitting.",
            )
    assert_never(flaw)


def _device(
    flaw: BeyondMemory | OptimizerStateWrong | LargerIsSlower | GapBelowMemoryLimit | NoOptimizerInMemory,
) -> tuple[str, str, str]:
    match flaw:
        case BeyondMemory(_, peak, limit):
            return (
                "More memory was in use than the device has.",
                f"{format_bytes(peak)} on a device of {format_bytes(limit)}: the rest was host memory.",
                "Sizes near this limit did not fit, they fell back to host memory; turn the fallback off in the "
                "driver and measure again.",
            )
        case OptimizerStateWrong(_, optimizer, states, expected, given):
            return (
                "The memory of the optimizer's state is not what the optimizer keeps.",
                f"{optimizer} keeps {format_plural(states, 'value')} of 4 bytes per parameter: "
                f"{format_bytes(expected)}, not {format_bytes(given)}.",
                "Correct the figure; the memory that remains for activations follows from it.",
            )
        case LargerIsSlower(_, smaller, larger, factor):
            return (
                f"Batch {larger:,.0f} is slower than batch {smaller:,.0f}.",
                f"It takes {factor:.3g} times as long for the same data. A larger batch should not be slower on a "
                "device that has the memory for it.",
                "Look for host-memory fallback, another program on the device, or recompilation in that run, and "
                "measure it again before it counts as a result.",
            )
        case GapBelowMemoryLimit(_, fits, fails):
            return (
                f"The largest size that fits lies anywhere from {fits:,.0f} to {fails - 1:,.0f}.",
                f"Batch {fits:,.0f} ran and batch {fails:,.0f} ran out of memory; nothing between them was tried.",
                "Try sizes between them, for example with `batchlab capacity`.",
            )
        case NoOptimizerInMemory(_, parameters):
            state = f": {format_bytes(8 * parameters)} more for Adam in fp32" if parameters else ""
            return (
                "Memory was measured without an optimizer.",
                f"A training step also holds the optimizer's state{state}.",
                "Measure whole training steps, optimizer included; the largest size that fits is smaller.",
            )
    assert_never(flaw)
