"""Records in, findings out: every part of the analysis in the order in which one needs the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from batchlab.analysis.calibration import calibrations
from batchlab.analysis.capacity.capacity import MemoryVariant
from batchlab.analysis.capacity.memory import capacity_finding
from batchlab.analysis.capacity.proof import rechecks
from batchlab.analysis.critical.finding import critical_finding
from batchlab.analysis.critical.steps_from_runs import is_sweep
from batchlab.analysis.dynamics.course import course_of
from batchlab.analysis.dynamics.diagnostics import diagnostics_finding
from batchlab.analysis.extrapolation import earlier_optima
from batchlab.analysis.findings import Findings
from batchlab.analysis.recommendation import recommend
from batchlab.analysis.sweep.baseline import baseline_finding
from batchlab.analysis.sweep.cost import costs_of
from batchlab.analysis.sweep.inferred import inferred_cells
from batchlab.analysis.sweep.loss_surface import no_finite_loss, surface_finding
from batchlab.analysis.sweep.retries import retried_cells
from batchlab.analysis.sweep.runs import first_runs, runs_from
from batchlab.analysis.sweep.throughput import throughput_finding
from batchlab.analysis.sweep.token_slope import token_slope
from batchlab.analysis.sweep.warmups import best_warmups, warmup_finding
from batchlab.analysis.values import (
    Cell,
    Course,
    EnvironmentDifference,
    FailedProbe,
    NoFiniteLoss,
    SurfaceFinding,
    TokensAt,
)
from batchlab.analysis.verdict import Shared, TokenSlope
from batchlab.core.batch import Unit
from batchlab.core.check import CheckItem, CheckResult
from batchlab.core.experiment import Experiment
from batchlab.core.record import Environment, MetricRow, Outcome, Record, TaskInfo
from batchlab.core.spec import Spec, ThroughputSpec, TraceSpec, TrainSpec
from batchlab.storage.decisions import CapacityDecision, Decisions, PriorStudy
from batchlab.storage.metrics import values_of
from batchlab.storage.sealed import DamagedFile

Rows = Callable[[str], Sequence[MetricRow]]
"""The metrics of a run by its run_id."""

COMPARED = (
    *("batchlab", "python", "numpy", "framework", "platform", "processor", "instruction_set", "device"),
    *("driver", "cuda", "compute_capability", "max_clock_mhz"),
)
"""What must be equal for runs to be compared. Threads differ by design between runs alone and runs together, and so do
the uuids of equal cards."""


def assemble(
    experiment: Experiment,
    task_info: TaskInfo | Mapping[str, Any],
    records: Sequence[tuple[Spec, Record]],
    rows: Rows | None = None,
    decisions: Decisions | None = None,
    checks: Sequence[CheckItem] = (),
    planned_runs: int | None = None,
    partial: bool = False,
    *,
    course: Callable[[str], Course] | None = None,
    infer: bool = True,
    damaged: Sequence[DamagedFile] = (),
) -> Findings:
    """Everything the documents are written from.

    `records` are all of a study's finished runs with their specs, in any order; `rows(run_id)` gives a run's metrics,
    and `course(run_id)` what is made of all of them, where the caller keeps that; `task_info` may be its JSON object;
    `checks` are the items of the task's check (default: those of the check among the records); `infer` False leaves out
    the surface that is fitted to all runs, whose cost grows with the cube of their number: no losses of cells that were
    not run, and the lowest mean is the best; `damaged` are files of the study whose runs are not among the records.
    """
    decided = decisions or Decisions()
    if not isinstance(task_info, TaskInfo):
        task_info = TaskInfo.model_validate(task_info)
    fits = decided.micro_batch.max_micro_batch_size if decided.micro_batch else None
    experiment = experiment.within_memory(fits)
    checked = next((record.result for _, record in records if isinstance(record.result, CheckResult)), None)
    budget = _token_budget(experiment, records, decided)
    lengths = decided.budget
    by_size = {size: each.token_budget for size, each in lengths.by_size.items()} if lengths else {}
    run_seconds = lengths.run_seconds if lengths else None

    def tokens_at(size: int) -> int | None:
        return by_size.get(size, budget)

    sizes, prior = experiment.batch.global_batch_sizes, decided.prior
    memory = decided.memory or CapacityDecision(searched_up_to=sizes[-1])
    variants = [MemoryVariant(name, **variant.model_dump()) for name, variant in decided.variants.items()]
    throughput = throughput_finding(records, experiment.device.data_parallel_size)
    swept = [(s, r) for s, r in records if not isinstance(s, TrainSpec) or _of_sweep(s, experiment, tokens_at)]
    runs = runs_from(swept, course) if course is not None else runs_from(swept, _course_from(rows))
    confirming = {run.seed for run in runs if experiment.sweep.confirms(run.seed)}
    taken = best_warmups(runs, confirming)
    surface = surface_finding(
        [run for run in runs if run.warmup_fraction == taken[run.global_batch_size]],
        sizes,
        throughput=throughput,
        tokens_at=tokens_at,
        confirmation_seeds=confirming,
        fit=infer,
    )
    if surface is not None and isinstance(surface.no_best, NoFiniteLoss):  # at no other warm-up either
        surface = replace(surface, no_best=no_finite_loss(runs))
    if surface is not None and rows is not None:
        surface = _with_rows(surface, rows)
    if surface is not None and infer:
        surface = replace(surface, inferred=inferred_cells(surface.rows))
    slope = slope_of(experiment, records, surface, tokens_at)
    costs = costs_of(surface, slope, experiment.sweep.tolerance, run_seconds) if surface else ()
    recommended, recommendations = recommend(surface, costs, experiment, tokens_at, len(runs), run_seconds)
    if surface is not None and surface.best is not None:
        budget = tokens_at(surface.best.global_batch_size)
    environments = [record.environment for _, record in records if record.environment is not None]
    return Findings(
        experiment=experiment,
        task_info=task_info,
        environment=environments[0] if environments else None,
        environments_differ=environment_differences(environments),
        checks=tuple(checks) or (checked.items if checked else ()),
        sample_independent=checked.sample_independent if checked else True,
        token_budget=budget,
        memory=capacity_finding(experiment, records, memory, variants),
        throughput=throughput,
        surface=surface,
        slope=slope,
        costs=costs,
        diagnostics=diagnostics_finding(runs, surface),
        runs=runs,
        recommended=recommended,
        recommendations=recommendations,
        failed_probes=_failed_probes(experiment, records),
        planned_runs=planned_runs,
        partial=partial,
        accepted_edits=tuple(sorted({edit.path for edit in decided.accepted_edits})),
        search_stopped=decided.search_stopped,
        earlier_optima=earlier_optima(prior.trials, prior.token_budget) if isinstance(prior, PriorStudy) else (),
        rechecks=rechecks(records),
        damaged=tuple(damaged),
        warmups=warmup_finding(runs, confirming, experiment.warmup_fractions),
        baseline=baseline_finding(experiment, runs, throughput),
        retried=retried_cells(
            runs, experiment.warmup_fractions, experiment.sweep.retry_diverged, experiment.sweep.first_seed
        ),
        critical=critical_finding(
            experiment, _taken(records, swept, taken), runs, surface, budget, family=task_info.optimizer_family
        )
        if run_seconds is None
        else None,  # it compares batch sizes at equal tokens
        run_seconds=run_seconds,
        tokens_by_size=by_size,
        calibrations=calibrations(records),
    )


def _of_sweep(spec: TrainSpec, experiment: Experiment, tokens_at: TokensAt) -> bool:
    return is_sweep(spec, experiment, tokens_at(spec.layout.global_batch_size))


def _taken(
    records: Sequence[tuple[Spec, Record]], swept: Sequence[tuple[Spec, Record]], taken: Mapping[int, float]
) -> list[tuple[Spec, Record]]:
    """The records without runs of the sweep at other warm-ups than the best one of their batch size."""
    others = {
        record.run_id
        for spec, record in swept
        if isinstance(spec, TrainSpec) and spec.schedule.warmup_fraction != taken.get(spec.layout.global_batch_size)
    }
    return [(spec, record) for spec, record in records if record.run_id not in others]


def slope_of(
    experiment: Experiment,
    records: Sequence[tuple[Spec, Record]],
    surface: SurfaceFinding | None,
    tokens_at: TokensAt,
) -> TokenSlope | None:
    """The slope of the loss against tokens, from the sweep and from runs of its cells at smaller budgets."""
    if surface is None:
        return None
    smaller = runs_from(
        (spec, record)
        for spec, record in records
        if isinstance(spec, TrainSpec)
        and spec.start is None
        and not spec.keep_end
        and spec.schedule == experiment.schedule_with(spec.schedule.warmup_fraction)
        and spec.token_budget < (tokens_at(spec.layout.global_batch_size) or 0)
    )
    decays = experiment.schedule.kind != "constant"
    shared = Shared.by(experiment.budget.run_time_seconds)
    language_model = experiment.unit is Unit.TOKENS and experiment.evaluation.metric is None
    found = token_slope(surface, smaller, tokens_at, language_model=language_model, decays=decays)
    return found and replace(found, shared=shared)


def _course_from(rows: Rows | None) -> Callable[[str], Course]:
    if rows is None:
        return lambda run_id: Course()
    return lambda run_id: course_of(run_id, [values_of(row) for row in rows(run_id)])


def _with_rows(surface: SurfaceFinding, rows: Rows) -> SurfaceFinding:
    """The surface in which the runs that are drawn in full have their rows: one of each batch size, however many runs
    there are. What was one cell or row stays one."""
    drawn = {run.run_id: replace(run, rows=tuple(rows(run.run_id))) for _, run in first_runs(surface)}
    cells: dict[int, Cell] = {}

    def filled(cell: Cell) -> Cell:
        if id(cell) not in cells:
            cells[id(cell)] = replace(cell, runs=tuple(drawn.get(run.run_id, run) for run in cell.runs))
        return cells[id(cell)]

    made = {
        id(row): replace(row, cells=tuple(map(filled, row.cells)), best=filled(row.best) if row.best else None)
        for row in surface.rows
    }
    return replace(
        surface,
        rows=tuple(made.values()),
        best=made[id(surface.best)] if surface.best else None,
        tied_cells=tuple(map(filled, surface.tied_cells)),
    )


def _failed_probes(experiment: Experiment, records: Sequence[tuple[Spec, Record]]) -> tuple[FailedProbe, ...]:
    """What did not complete besides training runs. Running out of memory is an answer of a capacity probe or a trace,
    and a memory optimization that the model cannot have is none of its failures."""
    failed = []
    for spec, record in records:
        if isinstance(spec, TrainSpec) or record.outcome is Outcome.COMPLETED:
            continue
        other = (
            isinstance(spec, TraceSpec) and spec.device.memory_optimizations != experiment.device.memory_optimizations
        )
        if not other and (record.outcome is Outcome.FAILED or isinstance(spec, ThroughputSpec)):
            failed.append(FailedProbe(spec.kind, record.run_id, record.outcome, record.reason))
    return tuple(failed)


def _token_budget(experiment: Experiment, records: Sequence[tuple[Spec, Record]], decided: Decisions) -> int | None:
    """What was decided for every run; without that what the runs were given, then what was asked for."""
    planned: int | None = decided.budget.token_budget if decided.budget else None
    if planned is None:
        planned = max((spec.token_budget for spec, _ in records if isinstance(spec, TrainSpec)), default=None)
    return planned if planned is not None else experiment.budget.token_budget


def environment_differences(environments: Sequence[Environment]) -> tuple[EnvironmentDifference, ...]:
    """The properties in which the records' environments differ."""
    found = []
    for name in COMPARED:
        values = sorted({str(getattr(environment, name)) or "unknown" for environment in environments})
        if len(values) > 1:
            found.append(EnvironmentDifference(name, tuple(values)))
    return tuple(found)
