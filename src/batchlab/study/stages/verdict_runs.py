"""The runs after the search, which settle what its answer costs: seeds of the best cell, a half budget, more seeds.

1. Where the cell that is called best, the lowest of the fitted surface, has fewer seeds than the search gave to the
   lowest mean, it gets the same seeds.
2. The best cell is run once at half the budget, with the same schedule decaying at its end: that slope tells what a
   higher loss costs in tokens. At a constant learning rate the runs' own evaluations tell it.
3. Where a sooner batch size is not shown to cost at most the tolerance, and as many seeds as that takes are left of the
   planned runs, both cells get them. All or none: fewer would not settle it.

What 1 and 3 decide is written down before the first of their runs, so that a resumed study does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Place
from batchlab.analysis.verdict import SlopeFrom, Unresolved
from batchlab.core.protocols import Engine
from batchlab.core.spec import TrainSpec
from batchlab.search.budget import token_budget_of
from batchlab.search.trial import Trial
from batchlab.storage.decisions import Decisions, FurtherSeeds
from batchlab.study.session import Session, run_specs
from batchlab.study.stages.context import SweepContext
from batchlab.study.stages.train_specs import train_spec
from batchlab.words.progress import half_budget_title, seeds_title

HALF = 2
"""The budget is divided by this for the slope."""

Kind = Literal["best", "tolerance"]
"""What further seeds are for."""


@dataclass(frozen=True, slots=True)
class Left:
    """Runs of the whole budget that may still be made: of those planned, and of the limits that were asked for."""

    planned: int
    allowed: float

    @property
    def runs(self) -> int:
        return int(max(0, min(self.planned, self.allowed)))

    def after(self, runs: float) -> Left:
        return replace(self, planned=int(self.planned - runs), allowed=self.allowed - runs)


def verdict_runs(session: Session, context: SweepContext, engine: Engine, left: Left) -> None:
    """Make the three kinds of runs, as far as `left` allows."""
    left = left.after(_run_seeds(session, context, engine, "best", left))
    left = left.after(_run_half_budget(session, context, engine, left))
    _run_seeds(session, context, engine, "tolerance", left)


def _findings(session: Session) -> Findings:
    store = session.study.store
    return assemble(
        session.study.experiment, session.study.task_info, store.records(), store.rows, store.decisions(), partial=True
    )


def _run_seeds(session: Session, context: SweepContext, engine: Engine, why: Kind, left: Left) -> int:
    store = session.study.store
    if why not in store.decisions().further_seeds:
        found = _findings(session)
        wanted = _of_best(found) if why == "best" else _of_tolerance(found)
        if len(_missing(found, wanted)) > left.runs:
            wanted = FurtherSeeds()
        store.decide(Decisions(further_seeds={why: wanted}))
    decided = store.decisions().further_seeds[why]
    trials = [_trial(cell, seed) for cell in decided.cells for seed in decided.seeds]
    if not trials:
        return 0
    session.view.stage(seeds_title(len(decided.seeds), len(decided.cells)), len(trials))
    run_specs(session, [train_spec(session, trial, context) for trial in trials], engine)
    return len(trials)


def _of_best(found: Findings) -> FurtherSeeds:
    """The seeds that every search gives to its two best cells, where the best cell lacks some of them."""
    surface, sweep = found.surface, found.experiment.sweep
    best = surface.best.best if surface and surface.best else None
    if surface is None or best is None or not surface.fitted:
        return FurtherSeeds()
    seeds = range(sweep.first_seed + 1, sweep.confirmation_seeds.stop)
    return FurtherSeeds(cells=(best.place,), seeds=tuple(seeds))


def _of_tolerance(found: Findings) -> FurtherSeeds:
    """As many seeds at the best cell and at the sooner one as would show that it costs no more."""
    surface, sweep = found.surface, found.experiment.sweep
    reason = found.recommended.reason if found.recommended else None
    best = surface.best.best if surface and surface.best else None
    if surface is None or best is None or not isinstance(reason, Unresolved) or reason.other.more_seeds is None:
        return FurtherSeeds()
    if not len(sweep.confirmation_seeds):
        return FurtherSeeds()
    row = next(row for row in surface.rows if row.global_batch_size == reason.other.global_batch_size)
    have = row.above_best.n if row.above_best and row.above_best.clean else 0
    first = sweep.first_seed + 1
    other = row.best
    assert other is not None  # a size that was compared has a best cell
    return FurtherSeeds(
        cells=(best.place, other.place), seeds=tuple(range(first, first + have + reason.other.more_seeds))
    )


def _trial(place: Place, seed: int = 0) -> Trial:
    size, rate, warmup = place
    return Trial(size, rate, seed, warmup)


def _missing(found: Findings, wanted: FurtherSeeds) -> Sequence[Trial]:
    done = {Trial(run.global_batch_size, run.learning_rate, run.seed, run.warmup_fraction) for run in found.runs}
    trials = [_trial(cell, seed) for cell in wanted.cells for seed in wanted.seeds]
    return [trial for trial in trials if trial not in done]


def _run_half_budget(session: Session, context: SweepContext, engine: Engine, left: Left) -> float:
    """One run of the best cell at half the budget; none where it is undertrained or a smaller budget was run."""
    spec = _half_budget(session, context, _findings(session))
    if spec is None or left.allowed < 1 / HALF:
        return 0.0
    session.view.stage(half_budget_title(spec.token_budget, session.study.experiment.unit), 1)
    run_specs(session, [spec], engine)
    return 1 / HALF


def _half_budget(session: Session, context: SweepContext, found: Findings) -> TrainSpec | None:
    experiment, surface = found.experiment, found.surface
    best = surface.best.best if surface and surface.best else None
    measured = found.slope is not None and found.slope.source is not SlopeFrom.PUBLISHED
    if best is None or measured or experiment.schedule.kind == "constant" or len(found.costs) < 2:
        return None
    sweep = experiment.sweep
    seed = sweep.confirmation_seeds.start if len(sweep.confirmation_seeds) else sweep.first_seed
    whole = train_spec(session, _trial(best.place, seed), context)
    half = whole.token_budget // HALF
    if half < whole.layout.tokens_per_step:
        return None
    tokens, interval = token_budget_of(
        half, (best.global_batch_size,), experiment.sequence_length, experiment.evaluation.points
    )
    changes = {"token_budget": tokens, "evaluation_interval": interval, "diagnostics": None, "gradients": None}
    spec = whole.model_copy(update=changes)
    return None if spec.undertrained else spec
