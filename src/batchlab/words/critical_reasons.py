"""Why an estimate of the critical batch size is missing or one-sided, and which runs would settle it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from batchlab.analysis.critical.branches import BranchFinding, BranchReason
from batchlab.analysis.critical.noise_scale import NoiseReason, NoiseScale
from batchlab.analysis.critical.planned_runs import Gap, PlannedRun
from batchlab.analysis.critical.ratio import MIN_BLOCKS
from batchlab.analysis.critical.steps_finding import (
    LowestAtEnd,
    Misfit,
    StepsFinding,
    StepsReason,
    TooFewAboveOptimum,
    TooFewReached,
)
from batchlab.analysis.critical.steps_to_target import MIN_SIZES
from batchlab.core.format import format_list, format_plural, format_size

_STEPS = {
    StepsReason.ONE_BUDGET: "these runs share one budget and decay the learning rate to its end, so none of them shows "
    "how many steps a loss takes",
    StepsReason.NONE_REACHED: "no run reached the target: choose a higher loss, or train longer",
    StepsReason.STEPS_GROW: "steps to the target grow with the batch size, which no critical batch size explains: "
    "larger sizes are probably not at their best learning rate",
    StepsReason.STEPS_DO_NOT_DEPEND: "steps hardly depend on the batch size: either all sizes are beyond the critical "
    "one, or noise hides it",
    StepsReason.NOISE: "noise hides how steps depend on the batch size",
    StepsReason.TOO_WIDE: "noise leaves more than a factor of 4 between the limits",
    StepsReason.SAMPLES_DO_NOT_GROW: "samples to the target do not grow with the batch size over these sizes",
    StepsReason.NO_LARGE_SIZE: "no size is large enough to show where steps stop falling",
    StepsReason.NO_SMALL_SIZE: "no size is small enough to show where samples stop falling",
}

_GAPS: dict[Gap, str] = {
    "schedule": "at a quarter and at half of the budget: three budgets show how many steps a loss takes",
    "smaller": "below the smallest size",
    "larger": "beyond the largest size",
    "between": "a size not measured yet",
    "longer": "to reach the target",
    "repeat": "two more seeds, and the learning rate re-tuned",
}


def noise_reason(found: NoiseScale) -> str:
    """Why a noise scale has no upper limit, or none at all; empty where it is measured."""
    match found.reason:
        case None:
            return ""
        case NoiseReason.TOO_FEW_STEPS:
            overflowed = f" ({found.overflowed} overflowed)" if found.overflowed else ""
            return (
                f"{format_plural(found.steps, 'usable step')}{overflowed} in {format_plural(found.blocks, 'block')}, "
                f"and an interval needs {MIN_BLOCKS} blocks: sample more steps"
            )
        case NoiseReason.GRADIENT_WITHIN_NOISE:
            within = "the gradient is within its own noise: |G|² may be 0 as far as these steps show"
            if found.at_least is None:
                return f"{within}. Sample more steps, or larger batches"
            return f"{within}, so there is no upper limit"
        case unknown:
            assert_never(unknown)


def steps_reason(found: StepsFinding) -> str:
    """Why steps to a loss give no critical batch size, or only a limit; empty where both limits are known."""
    match found.reason:
        case None:
            return ""
        case StepsReason.FEWEST_AT_LARGEST:
            return f"the largest size, {format_size(found.token_optimal or 0.0)}, needed the fewest samples"
        case StepsReason():
            return _STEPS[found.reason]
        case TooFewReached(reached, sizes):
            return f"{reached} of {sizes} batch sizes reached the target, and the curve needs {MIN_SIZES}"
        case TooFewAboveOptimum(sizes, optimum):
            return (
                f"only {format_plural(sizes, 'size')} at or above {format_size(optimum)}, which needed the fewest "
                f"samples, and the curve needs {MIN_SIZES}"
            )
        case LowestAtEnd(end):
            return (
                f"the lowest loss is not bracketed: {format_size(end)}, an end of the sizes measured, has it or is "
                "statistically tied with it"
            )
        case Misfit(largest_residual, noise_sd):
            return (
                f"steps leave every curve with one knee by up to {100 * largest_residual:.0f} %, which is not within "
                f"their noise of {100 * noise_sd:.1f} %: a learning rate may not be the best, or a run is out of line"
            )
        case unknown:
            assert_never(unknown)


def branch_reason(found: BranchFinding) -> str:
    """Why branches leave a limit open; empty where they do not."""
    match found.reason:
        case None:
            return ""
        case BranchReason.ONLY_UNCHANGED:
            return "only the unchanged batch size was run"
        case BranchReason.NONE_WORSE:
            return "no branch was worse: run larger multipliers"
        case BranchReason.NOISE:
            assert found.undecided is not None
            size = f"{found.undecided.multiplier:g} × {found.batch:g}"
            more = f"; {found.pairs_needed} pairs would decide it" if found.pairs_needed else ""
            return f"noise hides whether {size} loses more than {found.tolerance:g} nats{more}"
        case unknown:
            assert_never(unknown)


def settling_runs(runs: Sequence[PlannedRun]) -> str:
    """The runs that would settle what is unknown, by what they close, and the command where it trains them."""
    command = "" if any(run.gap == "repeat" for run in runs) else " (batchlab critical --run)"
    wanted = [
        f"batch {format_list([f'{run.batch:g}' for run in runs if run.gap == gap])} {_GAPS[gap]}"
        for gap in dict.fromkeys(run.gap for run in runs)
    ]
    return f"what would settle it: {'; '.join(wanted)}{command}"
