"""The critical batch size of a study by all three estimators, side by side; each keeps its own definition.

Batch sizes are in samples, and so are the tokens inside `branches` and `schedule`, because their formulas need both in
one unit; everything else called tokens is tokens.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.branches import (
    MIN_PAIRS,
    BatchSchedule,
    Branch,
    BranchFinding,
    branched_critical_batch,
    doubling_schedule,
)
from batchlab.analysis.findings import Run, SurfaceFinding, ThroughputFinding
from batchlab.analysis.iso_loss import (
    MIN_BUDGETS,
    BudgetRun,
    critical_batch_from_budgets,
    points_at_loss,
    tokens_to_loss,
    tuned_loss,
)
from batchlab.analysis.noise_scale import (
    MIN_BLOCKS,
    GradientNorms,
    NoiseScale,
    SignNoiseScale,
    SignNorms,
    noise_scale,
    noise_scale_series,
    sign_noise_scale,
)
from batchlab.analysis.steps_to_target import StepsFinding, StepsPoint, critical_batch, judge_sweep
from batchlab.experiment import Experiment
from batchlab.record import GradientSample, MetricRow, Outcome, Record, TrainResult
from batchlab.spec import Spec, TrainSpec

WINDOWS = 6
"""A run's sampled steps are shown in about so many windows along training."""
LEAST_WINDOW = 2 * MIN_BLOCKS


@dataclass(frozen=True, slots=True)
class NoiseSeries:
    """The noise scale along one run, the best learning rate and lowest seed of its batch size."""

    batch: int
    learning_rate: float
    run_id: str
    whole: NoiseScale
    windows: tuple[NoiseScale, ...]
    signs: SignNoiseScale | None
    norm_layers: NoiseScale | None

    @property
    def latest(self) -> NoiseScale:
        return self.windows[-1] if self.windows else self.whole

    @property
    def norm_layer_ratio(self) -> float | None:
        """What a noise scale of norm layers alone is to be multiplied by to give that of all parameters, here."""
        if self.norm_layers is None or self.norm_layers.value is None or self.whole.value is None:
            return None
        return self.whole.value.value / self.norm_layers.value.value if self.norm_layers.value.value > 0 else None


@dataclass(frozen=True, slots=True)
class Effort:
    """What measuring took: runs of its own, their tokens, and the seconds of their steps."""

    runs: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ToTarget:
    """What one batch size needs to reach the target loss; None: it did not within the budgets trained."""

    batch: int
    tokens: float | None
    steps: float | None


@dataclass(frozen=True, slots=True)
class CriticalFinding:
    """All three, each with what it cost. `target` None: no loss is reached by enough sizes."""

    noise: tuple[NoiseSeries, ...]
    no_noise: tuple[str, ...]  # why runs have none
    steps: StepsFinding
    target: float | None
    budgets: tuple[int, ...]
    curve: tuple[ToTarget, ...]
    branches: tuple[BranchFinding, ...]
    left_out: tuple[str, ...]  # branches that have no loss to compare
    schedule: BatchSchedule | None
    window: int
    steps_effort: Effort
    branch_effort: Effort


def is_sweep(spec: TrainSpec, budget: int | None) -> bool:
    """Whether a training run belongs to the sweep: from scratch, at the budget of all."""
    return spec.start is None and not spec.keep_end and budget in (None, spec.token_budget)


def critical_finding(
    experiment: Experiment,
    records: Sequence[tuple[Spec, Record]],
    runs: Sequence[Run],
    surface: SurfaceFinding | None,
    budget: int | None,
    *,
    family: str = "adam",
) -> CriticalFinding | None:
    """Everything the records say about it; None before the sweep has a best batch. `runs` are the sweep's."""
    if surface is None or surface.best is None or budget is None:
        return None
    trained = [(spec, record) for spec, record in records if isinstance(spec, TrainSpec)]
    shorter = [(s, r) for s, r in trained if s.start is None and not s.keep_end and s.token_budget != budget]
    branched = [(s, r) for s, r in trained if s.start is not None or s.keep_end]
    series = tuple(found for row in surface.rows if (found := _series(row.best.runs if row.best else ())) is not None)
    why = sorted({r.result.no_gradient_samples for _, r in trained if isinstance(r.result, TrainResult)} - {""})
    whole = [(s, r) for s, r in trained if is_sweep(s, budget)]
    steps, target, budgets, curve = _steps(experiment, [*whole, *shorter], surface, budget)
    branches, left_out, window = _branches(branched, experiment)
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
        noise=series,
        no_noise=tuple(why),
        steps=steps,
        target=target,
        budgets=budgets,
        curve=curve,
        branches=branches,
        left_out=left_out,
        schedule=schedule,
        window=window,
        steps_effort=_effort(shorter),
        branch_effort=_effort(branched),
    )


def _effort(runs: Sequence[tuple[TrainSpec, Record]]) -> Effort:
    results = [record.result for _, record in runs if isinstance(record.result, TrainResult)]
    return Effort(len(runs), sum(r.tokens for r in results), math.fsum(r.seconds for r in results))


def _series(runs: Sequence[Run]) -> NoiseSeries | None:
    run = min((r for r in runs if r.outcome is Outcome.COMPLETED), key=lambda r: r.seed, default=None)
    rows = [(row, row.gradients) for row in run.rows if row.gradients is not None] if run else []
    if run is None or not rows:
        return None
    norms = [_norms(row, sample) for row, sample in rows]
    window = max(LEAST_WINDOW, math.ceil(len(norms) / WINDOWS))
    inner = [n for row, sample in rows if (n := _norm_layer_norms(row, sample)) is not None]
    signs = [s for row, sample in rows if (s := _sign_norms(row, sample)) is not None]
    return NoiseSeries(
        batch=run.global_batch_size,
        learning_rate=run.learning_rate,
        run_id=run.run_id,
        whole=noise_scale(norms),
        windows=noise_scale_series(norms, window) if len(norms) >= window else (),
        signs=sign_noise_scale(signs) if signs else None,
        norm_layers=noise_scale(inner) if inner else None,
    )


def _norms(row: MetricRow, sample: GradientSample) -> GradientNorms:
    return GradientNorms(
        sample.micro_batch_sizes, sample.squared_norms, sample.mean_squared_norm, tokens=float(row.tokens)
    )


def _norm_layer_norms(row: MetricRow, sample: GradientSample) -> GradientNorms | None:
    squares, whole = sample.norm_layer_squared_norms, sample.norm_layer_mean_squared_norm
    if squares is None or whole is None:
        return None
    return GradientNorms(sample.micro_batch_sizes, squares, whole, tokens=float(row.tokens))


def _sign_norms(row: MetricRow, sample: GradientSample) -> SignNorms | None:
    if sample.spread is None or sample.absolute_mean is None or sample.agreement is None:
        return None
    # two groups whatever the number of micro-batches: all but the last, and the last
    return SignNorms(2, sample.spread, sample.absolute_mean, sample.agreement, tokens=float(row.tokens))


def _steps(
    experiment: Experiment, trained: Sequence[tuple[TrainSpec, Record]], surface: SurfaceFinding, budget: int
) -> tuple[StepsFinding, float | None, tuple[int, ...], tuple[ToTarget, ...]]:
    length = experiment.sequence_length
    runs = [
        BudgetRun(spec.layout.global_batch_size, spec.learning_rate, spec.token_budget / length, loss)
        for spec, record in trained
        if spec.seed == experiment.sweep.first_seed and (loss := _loss(record)) is not None
    ]
    budgets = tuple(sorted({round(run.tokens * length) for run in runs}))
    judged = [row for row in surface.rows if row.loss is not None and not row.starved]
    if len(budgets) < MIN_BUDGETS:
        sizes = [float(row.global_batch_size) for row in judged]
        losses = [row.loss.value for row in judged if row.loss is not None]
        return judge_sweep(sizes, losses, loss_sd=surface.noise_sd), None, budgets, ()
    target = experiment.evaluation.target_loss or common_target(runs)
    sizes = sorted({run.batch for run in runs})
    if target is None:
        none = critical_batch([StepsPoint(size, None) for size in sizes], origin="budgets")
        return none, None, budgets, ()
    found = critical_batch_from_budgets(runs, target, loss_sd=(surface.noise_sd or 0.0) / target)
    points = points_at_loss(runs, target)
    curve = tuple(
        ToTarget(round(p.batch), None if p.steps is None else p.steps * p.batch * length, p.steps) for p in points
    )
    return found, target, budgets, curve


def _loss(record: Record) -> float | None:
    result = record.result
    if record.outcome is not Outcome.COMPLETED or not isinstance(result, TrainResult):
        return None
    loss = result.final_val_loss
    return loss if loss is not None and math.isfinite(loss) else None


def common_target(runs: Sequence[BudgetRun]) -> float | None:
    """The loss that the most batch sizes cross within their budgets; of several such, the middle one."""
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


def _branches(
    records: Sequence[tuple[TrainSpec, Record]], experiment: Experiment
) -> tuple[tuple[BranchFinding, ...], tuple[str, ...], int]:
    """One finding per checkpoint, the branches that could not be compared, and the window in tokens."""
    trunks = {record.run_id: spec for spec, record in records if spec.keep_end}
    by_start: dict[str, dict[int, dict[int, float | None]]] = defaultdict(lambda: defaultdict(dict))
    window = 0
    for spec, record in records:
        if spec.start is not None and not spec.keep_end:
            by_start[spec.start][spec.layout.global_batch_size][spec.seed] = _loss(record)
            window = max(window, spec.token_budget)
    found, left_out = [], []
    for run_id in sorted(by_start, key=lambda start: _seen(start, trunks)):
        if run_id not in trunks:
            continue
        batch, sizes = trunks[run_id].layout.global_batch_size, by_start[run_id]
        at = _seen(run_id, trunks)
        whole = {size: losses for size, losses in sizes.items() if all(v is not None for v in losses.values())}
        left_out += [
            f"batch {size:,} after {at:,} {experiment.unit}: a branch has no finite loss"
            for size in sorted(sizes.keys() - whole.keys())
        ]
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


def _seen(run_id: str, trunks: dict[str, TrainSpec]) -> int:
    """Tokens that a run at constant learning rate had seen at its end, those of the pieces before it included."""
    total, at, visited = 0, run_id if run_id in trunks else None, set()
    while at is not None and at in trunks and at not in visited:
        visited.add(at)
        total += trunks[at].token_budget
        at = trunks[at].start
    return total


def hours_to_target(
    point: ToTarget, throughput: ThroughputFinding | None, devices: int, sequence_length: int
) -> float | None:
    """Time to the target on `devices` like the measured one, each taking an equal share; communication is free here.

    A share that was not measured takes the speed of the nearest measured size.
    """
    if throughput is None or not throughput.points or point.tokens is None or point.batch < devices:
        return None
    share = point.batch / devices
    nearest = min(throughput.points, key=lambda p: abs(math.log(p.layout.global_batch_size / share)))
    speed = nearest.tokens_per_second.value
    size = nearest.layout.global_batch_size
    if share < size:  # a smaller share cannot be faster in steps than the smallest measured one
        speed *= share / size
    return point.tokens / (speed * devices) / 3600


def beyond(found: CriticalFinding | None, batch: int) -> tuple[str, ...]:
    """One sentence for each estimator by which `batch` is beyond the critical size; empty where none says so."""
    if found is None:
        return ()
    said = []
    overhead = found.steps.overhead
    if overhead is not None and overhead.value is not None and batch > overhead.value.value:
        base = f" over batch {overhead.base_batch:g}" if overhead.base_batch else ""
        said.append(
            f"batch {batch:,} is above {overhead.value.value:.3g}, from where a loss takes 20 % more samples{base} "
            "(critical batch, 20pct)"
        )
    elif overhead is not None and overhead.at_most is not None and batch > overhead.at_most:
        said.append(f"batch {batch:,} is above {overhead.at_most:.3g}, the most the 20pct critical batch can be")
    if found.branches:
        last = found.branches[-1]
        if last.below is not None and batch >= last.below:
            said.append(
                f"batch {batch:,}: a branch at {last.below:g} lost more than {last.tolerance:g} nats (branched)"
            )
    latest = max(found.noise, key=lambda s: s.whole.steps, default=None)
    value = latest.latest.value if latest else None
    if value is not None and value.high is not None and batch > value.high:
        said.append(
            f"batch {batch:,} is above the noise scale late in training, {value.value:.3g} (at most {value.high:.3g})"
        )
    return tuple(said)
