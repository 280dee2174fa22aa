"""The critical batch sizes of a study and its noise scale, side by side; each keeps its own definition.

Batch sizes are in samples, and so are the tokens inside `branches` and `schedule`, because their formulas need both in
one unit. Everywhere else, tokens are tokens.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.critical.branches import (
    MIN_PAIRS,
    BatchSchedule,
    Branch,
    BranchFinding,
    branched_critical_batch,
    doubling_schedule,
)
from batchlab.analysis.critical.noise_series import NoiseSeries, noise_series
from batchlab.analysis.critical.steps_finding import CriticalBatch, StepsFinding
from batchlab.analysis.critical.steps_from_runs import (
    Source,
    ToTarget,
    Trained,
    is_cooldown,
    is_sweep,
    seen_at_end,
    steps_from_runs,
)
from batchlab.analysis.values import Run, SurfaceFinding
from batchlab.core.experiment import Experiment
from batchlab.core.record import NoGradientSamples, Outcome, Record, TrainResult
from batchlab.core.spec import Spec, TrainSpec


@dataclass(frozen=True, slots=True)
class Effort:
    """The cost of a measurement: runs of its own, their tokens, and the seconds of their steps."""

    runs: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LeftOutBranch:
    """A branch without a finite loss to compare, at `batch` from the checkpoint after `tokens`."""

    batch: int
    tokens: int


@dataclass(frozen=True, slots=True)
class CriticalFinding:
    """All three, each with its cost. `target` None: no loss is reached by enough sizes."""

    noise: tuple[NoiseSeries, ...]
    no_noise: tuple[tuple[NoGradientSamples, ...], ...]  # why runs have none
    steps: StepsFinding
    steps_source: Source
    target: float | None
    budgets: tuple[int, ...]
    curve: tuple[ToTarget, ...]
    too_few_steps: int
    branches: tuple[BranchFinding, ...]
    left_out: tuple[LeftOutBranch, ...]
    schedule: BatchSchedule | None
    window: int
    steps_effort: Effort
    branch_effort: Effort


def critical_finding(
    experiment: Experiment,
    records: Sequence[tuple[Spec, Record]],
    runs: Sequence[Run],
    surface: SurfaceFinding | None,
    budget: int | None,
    *,
    family: str = "adam",
) -> CriticalFinding | None:
    """All that the records say about it; None before the sweep has a best batch size. `runs` are those of the sweep."""
    if surface is None or surface.best is None or budget is None:
        return None
    trained = [(spec, record) for spec, record in records if isinstance(spec, TrainSpec)]
    series = [found for row in surface.rows if (found := noise_series(row.best.runs if row.best else ())) is not None]
    why = sorted({r.result.no_gradient_samples for _, r in trained if isinstance(r.result, TrainResult)} - {()})
    steps = steps_from_runs(experiment, trained, surface, budget)
    to_a_loss, branched = _beside_the_sweep(experiment, trained, budget)
    branches, left_out, window = _branches(trained, experiment)
    schedule = None
    if branches:
        length = experiment.sequence_length
        schedule = doubling_schedule(
            branches,
            start_batch=branches[0].batch,
            total_tokens=budget / length,
            window_tokens=window / length,
            learning_rate_exponent=1.0 if family == "sgd" else 0.5,
        )
    return CriticalFinding(
        noise=tuple(series),
        no_noise=tuple(why),
        steps=steps.finding,
        steps_source=steps.source,
        target=steps.target,
        budgets=steps.budgets,
        curve=steps.curve,
        too_few_steps=steps.too_few_steps,
        branches=branches,
        left_out=left_out,
        schedule=schedule,
        window=window,
        steps_effort=_effort(to_a_loss),
        branch_effort=_effort(branched),
    )


def _beside_the_sweep(experiment: Experiment, trained: Trained, budget: int) -> tuple[Trained, Trained]:
    """(runs for steps to a loss, runs for branches)."""
    ends = {spec.start for spec, _ in trained if is_cooldown(spec)}
    to_a_loss: list[tuple[TrainSpec, Record]] = []
    branched: list[tuple[TrainSpec, Record]] = []
    for spec, record in trained:
        if is_sweep(spec, experiment, budget):
            continue
        alone = spec.start is None and not spec.keep_end
        (to_a_loss if alone or is_cooldown(spec) or record.run_id in ends else branched).append((spec, record))
    return to_a_loss, branched


def _effort(runs: Trained) -> Effort:
    results = [record.result for _, record in runs if isinstance(record.result, TrainResult)]
    return Effort(len(runs), sum(r.tokens for r in results), math.fsum(r.seconds for r in results))


def _loss(record: Record) -> float | None:
    result = record.result
    if record.outcome is not Outcome.COMPLETED or not isinstance(result, TrainResult):
        return None
    loss = result.val_loss
    return loss if loss is not None and math.isfinite(loss) else None


def _branches(
    records: Trained, experiment: Experiment
) -> tuple[tuple[BranchFinding, ...], tuple[LeftOutBranch, ...], int]:
    """One finding per checkpoint, the branches that could not be compared, and the window in tokens."""
    parents = {record.run_id: spec for spec, record in records if spec.keep_end}
    by_start: dict[str, dict[int, dict[int, float | None]]] = defaultdict(lambda: defaultdict(dict))
    window = 0
    for spec, record in records:
        if spec.start is not None and not spec.keep_end and not is_cooldown(spec):
            by_start[spec.start][spec.layout.global_batch_size][spec.seed] = _loss(record)
            window = max(window, spec.token_budget)
    found, left_out = [], []
    for run_id in sorted(by_start, key=lambda start: seen_at_end(start, parents)):
        if run_id not in parents:
            continue
        batch, sizes = parents[run_id].layout.global_batch_size, by_start[run_id]
        at = seen_at_end(run_id, parents)
        whole = {size: losses for size, losses in sizes.items() if all(v is not None for v in losses.values())}
        left_out += [LeftOutBranch(size, at) for size in sorted(sizes.keys() - whole.keys())]
        seeds = sorted(set.intersection(*(set(losses) for losses in whole.values()))) if whole else []
        if batch not in whole or len(seeds) < MIN_PAIRS:
            continue
        branches = [
            Branch(size / batch, tuple(float(losses[seed] or 0.0) for seed in seeds)) for size, losses in whole.items()
        ]
        finding = branched_critical_batch(
            branches,
            batch=float(batch),
            tolerance=experiment.critical.tolerance,
            tokens=at / experiment.sequence_length,
        )
        found.append(finding)
    return tuple(found), tuple(left_out), window


def beyond(found: CriticalFinding | None, batch: int) -> tuple[CriticalBatch | BranchFinding, ...]:
    """The critical batch sizes that `batch` exceeds: with 20 % overhead, and branched late in training."""
    if found is None:
        return ()
    exceeded: list[CriticalBatch | BranchFinding] = []
    overhead = found.steps.overhead
    if overhead is not None:
        most = overhead.value.value if overhead.value is not None else overhead.at_most
        if most is not None and batch > most:
            exceeded.append(overhead)
    if found.branches:
        last = found.branches[-1]
        if last.below is not None and batch >= last.below:
            exceeded.append(last)
    return tuple(exceeded)
