"""Steps to a loss from the runs of a study, by what its schedule allows.

- Runs that decay to their end show one loss, at their budget: three budgets or more are needed.
- WSD: a decay that branches off a run at constant learning rate shows the loss of a whole run of that length.
- Constant learning rate: a run shows a loss at every evaluation. Its weights are not averaged, so these losses contain
  the noise that a decay or an average would remove, most of it at small batch sizes and high learning rates.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.analysis.critical.iso_loss import (
    MIN_BUDGETS,
    BudgetRun,
    critical_batch_from_budgets,
    points_at_loss,
    tokens_to_loss,
    tuned_loss,
)
from batchlab.analysis.critical.steps_finding import StepsFinding
from batchlab.analysis.critical.steps_to_target import StepsPoint, critical_batch, judge_sweep
from batchlab.analysis.values import SurfaceFinding, ThroughputFinding
from batchlab.core.experiment import Experiment
from batchlab.core.record import Outcome, Record, TrainResult
from batchlab.core.spec import MIN_STEPS, TrainSpec

COOLDOWN = 1.0
"""Share that decays of a run that branches off a constant learning rate to end a budget. Branches decay over less."""

Source = Literal["sweep", "budgets", "decays", "constant_lr"]
Trained = Sequence[tuple[TrainSpec, Record]]


@dataclass(frozen=True, slots=True)
class ToTarget:
    """What one batch size needs to reach the target loss; None where it did not within the budgets trained."""

    batch: int
    tokens: float | None
    steps: float | None


@dataclass(frozen=True, slots=True)
class StepsFromRuns:
    """The finding and what it was read from; `budgets` are token counts at which the sweep's sizes have a loss.

    `target` None: no loss is reached by enough sizes. `too_few_steps`: losses not used because the run had taken fewer
    than 50 steps, or fewer than 5 of warm-up.
    """

    finding: StepsFinding
    source: Source
    target: float | None = None
    budgets: tuple[int, ...] = ()
    curve: tuple[ToTarget, ...] = ()
    too_few_steps: int = 0


def is_sweep(spec: TrainSpec, experiment: Experiment, budget: int | None) -> bool:
    """Whether a training run belongs to the sweep: from scratch, at one of its sizes, with the common budget."""
    of_axis = spec.layout.global_batch_size in experiment.batch.global_batch_sizes
    return spec.start is None and not spec.keep_end and of_axis and budget in (None, spec.token_budget)


def is_cooldown(spec: TrainSpec) -> bool:
    """Whether a run branches off one at constant learning rate to show the loss of a whole run that ends there."""
    return spec.start is not None and not spec.keep_end and spec.schedule.decay_fraction == COOLDOWN


def seen_at_end(run_id: str | None, parents: dict[str, TrainSpec]) -> int:
    """Tokens that a run at constant learning rate had seen at its end, including those of the segments before it."""
    total, visited = 0, set()
    while run_id is not None and run_id in parents and run_id not in visited:
        visited.add(run_id)
        total += parents[run_id].token_budget
        run_id = parents[run_id].start
    return total


def steps_from_runs(
    experiment: Experiment, trained: Trained, surface: SurfaceFinding, budget: int | None
) -> StepsFromRuns:
    """Steps to the target that was asked for, else to a loss that most sizes cross; from runs of the first seed."""
    length = experiment.sequence_length
    losses = _losses(experiment, trained)
    runs = [
        BudgetRun(spec.layout.global_batch_size, spec.learning_rate, tokens / length, loss)
        for spec, tokens, loss in losses
        if _steps_enough(spec, tokens)
    ]
    of_axis = {float(size) for size in experiment.batch.global_batch_sizes}
    budgets = tuple(sorted({round(run.tokens * length) for run in runs if run.batch in of_axis}))
    if len(budgets) < MIN_BUDGETS:
        judged = [row for row in surface.rows if row.val_loss is not None and not row.undertrained]
        sizes = [float(row.global_batch_size) for row in judged]
        means = [row.val_loss.value for row in judged if row.val_loss is not None]
        return StepsFromRuns(judge_sweep(sizes, means, loss_sd=surface.noise_sd), "sweep", budgets=budgets)
    source: Source = "budgets"
    if experiment.schedule.kind == "constant":
        source = "constant_lr"
    elif any(is_cooldown(spec) for spec, _, _ in losses):
        source = "decays"
    few = len(losses) - len(runs)
    target = experiment.evaluation.target_loss or common_target(runs)
    if target is None:
        none = critical_batch(
            [StepsPoint(size, None) for size in sorted({run.batch for run in runs})], origin="budgets"
        )
        return StepsFromRuns(none, source, budgets=budgets, too_few_steps=few)
    found = critical_batch_from_budgets(runs, target, loss_sd=(surface.noise_sd or 0.0) / target)
    points = points_at_loss(runs, target)
    curve = tuple(
        ToTarget(round(p.batch), None if p.steps is None else p.steps * p.batch * length, p.steps) for p in points
    )
    return StepsFromRuns(found, source, target, budgets, curve, few)


def _losses(experiment: Experiment, trained: Trained) -> list[tuple[TrainSpec, int, float]]:
    """(run, tokens, loss) wherever a run of the first seed shows the loss of a whole run of so many tokens."""
    parents = {record.run_id: spec for spec, record in trained if spec.keep_end}
    found = []
    for spec, record in trained:
        result = record.result
        if (
            spec.keep_end
            or spec.seed != experiment.sweep.first_seed
            or record.outcome is not Outcome.COMPLETED
            or not isinstance(result, TrainResult)
        ):
            continue
        if spec.start is None and spec.schedule.kind == "constant":
            found += [(spec, tokens, loss) for tokens, loss in result.val_curve if tokens > spec.warmup_tokens]
        elif (spec.start is None or is_cooldown(spec)) and result.val_loss is not None:
            found.append((spec, seen_at_end(spec.start, parents) + spec.token_budget, result.val_loss))
    return [(spec, tokens, loss) for spec, tokens, loss in found if math.isfinite(loss)]


def _steps_enough(spec: TrainSpec, tokens: int) -> bool:
    return tokens >= MIN_STEPS * spec.layout.tokens_per_step and (spec.start is not None or not spec.undertrained)


def common_target(runs: Sequence[BudgetRun]) -> float | None:
    """The loss that the most batch sizes cross within their budgets; the middle one of several."""
    cells: dict[float, dict[float, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        cells[run.batch][run.tokens][run.learning_rate] = run.loss
    curves = [[(tokens, tuned_loss(losses)) for tokens, losses in budgets.items()] for budgets in cells.values()]
    losses = sorted({loss for curve in curves for _, loss in curve})
    between = [(a + b) / 2 for a, b in itertools.pairwise(losses)]
    crossed = {target: sum(tokens_to_loss(curve, target) is not None for curve in curves) for target in between}
    most = max(crossed.values(), default=0)
    best = [target for target in between if crossed[target] == most]
    return best[len(best) // 2] if most else None


def hours_to_target(
    point: ToTarget, throughput: ThroughputFinding | None, devices: int, sequence_length: int
) -> float | None:
    """Hours to the target on `devices` like the measured one, each with an equal share, without communication.

    A share that was not measured is given the speed of the nearest measured size.
    """
    if throughput is None or not throughput.points or point.tokens is None or point.batch < devices:
        return None
    share = point.batch / devices
    nearest = min(throughput.points, key=lambda p: abs(math.log(p.share / share)))
    speed, size = nearest.device_speed, nearest.share
    if share < size:  # its steps cannot be faster than those of the smallest measured size
        speed *= share / size
    return point.tokens / (speed * devices) / 3600
