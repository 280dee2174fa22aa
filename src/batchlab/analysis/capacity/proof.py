"""Has a layout run for long enough to be planned with? Three steps show that it fits, but memory can grow after them.

Caching allocators fragment, libraries allocate at their first use, and logging keeps references. A batch size is judged
by fifty whole steps anyway, so the sweep has proved every layout it recommends; others need a run of their own.
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
    """A run of MIN_STEPS made to see whether a layout keeps fitting; `reason`: why it did not, as recorded."""

    micro_batch_size: int
    grad_accum_steps: int
    fits: bool
    reason: str = ""

    def is_of(self, layout: BatchLayout) -> bool:
        """Whether it ran what one device runs in a step of this layout."""
        return (self.micro_batch_size, self.grad_accum_steps) == (layout.micro_batch_size, layout.grad_accum_steps)


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of a layout after its first steps: `runs` runs of at least `steps` whole steps.

    They are training runs of the sweep, or the one made for it, `recheck`.
    """

    fits: bool
    steps: int
    runs: int
    recheck: Recheck | None = None


def rechecks(records: Iterable[tuple[Spec, Record]]) -> tuple[Recheck, ...]:
    """Every run of MIN_STEPS that was made for this and that completed or ran out of memory."""
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
    """Training runs of exactly what one device runs in a step of `layout`, else a run of 50 steps; None: neither."""
    steps = [
        run.steps
        for run in runs
        if run.outcome is Outcome.COMPLETED
        and run.steps >= MIN_STEPS
        and (run.layout.micro_batch_size, run.layout.grad_accum_steps)
        == (layout.micro_batch_size, layout.grad_accum_steps)
    ]
    if steps:
        return Proof(True, min(steps), len(steps))
    made = next((recheck for recheck in checked if recheck.is_of(layout)), None)
    return None if made is None else Proof(made.fits, MIN_STEPS, 1, made)
