"""Has a layout run for long enough to be planned with? Three steps show that it fits; memory can still grow after them.

Caching allocators fragment, libraries allocate at their first use, and logging keeps things. Fifty whole steps are what
a batch size is judged by anyway, so the sweep has proved every layout it recommends; others take a run of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from batchlab.analysis.values import Run
from batchlab.core.batch import BatchLayout
from batchlab.core.record import CapacityResult, Outcome, Record
from batchlab.core.spec import MIN_STEPS, CapacitySpec, Spec


@dataclass(frozen=True, slots=True)
class Recheck:
    """A run of MIN_STEPS made to see whether a layout goes on fitting; `reason`: why not."""

    micro_batch_size: int
    grad_accum_steps: int
    fits: bool
    reason: str = ""

    def is_of(self, layout: BatchLayout) -> bool:
        """Made with the passes that one device runs in a step of this layout."""
        return (self.micro_batch_size, self.grad_accum_steps) == (layout.micro_batch_size, layout.grad_accum_steps)


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of a layout after its first steps. runs: training runs of at least `steps` whole steps."""

    fits: bool
    text: str
    runs: int = 0


def rechecks(records: Iterable[tuple[Spec, Record]]) -> tuple[Recheck, ...]:
    """Every run of MIN_STEPS that was made for this and ended, well or out of memory."""
    return tuple(
        Recheck(
            spec.micro_batch_size,
            spec.grad_accum_steps,
            record.outcome is Outcome.COMPLETED and isinstance(record.result, CapacityResult) and record.result.fits,
            record.reason,
        )
        for spec, record in records
        if isinstance(spec, CapacitySpec) and spec.steps >= MIN_STEPS and record.outcome is not Outcome.FAILED
    )


def proof_of(layout: BatchLayout, runs: Sequence[Run], checked: Sequence[Recheck]) -> Proof | None:
    """Training runs at exactly what one device does in a step of `layout`, else a run of 50 steps; None: neither."""
    steps = [
        run.steps
        for run in runs
        if run.outcome is Outcome.COMPLETED
        and run.steps >= MIN_STEPS
        and (run.layout.micro_batch_size, run.layout.grad_accum_steps)
        == (layout.micro_batch_size, layout.grad_accum_steps)
    ]
    if steps:
        counted = f"{len(steps)} runs" if len(steps) > 1 else "a run"
        return Proof(True, f"{counted} of at least {min(steps)} whole steps ended within memory", len(steps))
    for recheck in checked:
        if recheck.is_of(layout):
            ended = "ended within memory" if recheck.fits else f"did not fit: {recheck.reason}"
            return Proof(recheck.fits, f"{MIN_STEPS} whole steps run for this plan {ended}", 1)
    return None
