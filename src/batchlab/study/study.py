"""The story of a study, told once: check, capacity, throughput, budget, sweep, documents.

Every stage can be interrupted and asked again; what is on disk is not done twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from batchlab.analysis.assemble import assemble
from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.capacity.proof import proof_of
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.throughput import BUSY_SHARE
from batchlab.core.batch import BatchLayout
from batchlab.core.check import CheckResult
from batchlab.core.errors import BatchlabError, InputError, StudyInterrupted
from batchlab.core.experiment import DEFAULT_TIME_BUDGET, Experiment
from batchlab.core.format import format_duration
from batchlab.core.protocols import View
from batchlab.core.record import Outcome, TaskInfo
from batchlab.core.spec import MIN_STEPS, CapacitySpec
from batchlab.plan import TrainingPlan, make_plan
from batchlab.report.notes import notes_page
from batchlab.report.write import write_report
from batchlab.search.budget import explored, token_budget_of
from batchlab.search.cost import cost_of
from batchlab.search.grid import default_learning_rates
from batchlab.search.repeats import Repeats
from batchlab.storage.decisions import Decisions
from batchlab.storage.store import Store
from batchlab.study.open_study import EngineFactory, open_study, reopen_study
from batchlab.study.session import Session, run_alone
from batchlab.study.stages.budget import budget_stage, concurrency_stage, learning_rates_of
from batchlab.study.stages.capacity import (
    LARGEST,
    LARGEST_EVALUATION_BATCH,
    CapacityRequest,
    capacity_stage,
    describe_capacity,
    sweep_need,
)
from batchlab.study.stages.check import check_stage
from batchlab.study.stages.critical import critical_stage, describe_runs
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.sweep import sweep_stage
from batchlab.study.stages.throughput import known_oom, layout_for, throughput_stage
from batchlab.study.stages.variants import variants_stage
from batchlab.words.capacity import capacity_lines
from batchlab.words.check import check_lines
from batchlab.words.search import describe_budget, describe_cost
from batchlab.words.summary import summary_lines

Stage = Literal["check", "capacity", "throughput", "sweep"]


@dataclass(frozen=True, slots=True)
class StudyResult:
    """What a study came to: the findings, and the summary a person reads."""

    folder: Path
    findings: Findings
    summary: tuple[str, ...]
    failure: str = ""  # why it ended before its last stage

    @property
    def answered(self) -> bool:
        """Whether there is something to train with."""
        return self.findings.recommended is not None

    def answered_at(self, until: Stage) -> bool:
        """Whether the question of the stage asked for has an answer."""
        memory, throughput = self.findings.memory, self.findings.throughput
        match until:
            case "check":
                return bool(self.findings.checks) and all(item.status != "fail" for item in self.findings.checks)
            case "capacity":
                return memory is not None and memory.max_micro_batch_size is not None
            case "throughput":
                return throughput is not None and bool(throughput.points)
            case "sweep":
                return self.answered


def run_study(
    experiment: Experiment,
    folder: Path,
    make_engine: EngineFactory,
    view: View,
    *,
    until: Stage = "sweep",
    request: CapacityRequest = LARGEST,
    accept_edits: bool = False,
    retry_failed: bool = False,
) -> StudyResult:
    """Begin or continue the study in `folder` up to and including the stage `until`, and write its documents.

    request: what the capacity stage is asked when it is the last.

    Raises InputError before anything is written where the request is wrong, StudyInterrupted on Ctrl-C or SIGTERM and
    StorageFailed on a full disk; in both cases what was finished is kept and the report is up to date.
    """
    begun = time.monotonic()
    study = open_study(experiment, folder, make_engine, accept_edits=accept_edits)
    store = study.store

    def after_run() -> None:
        write_documents(store, partial=True)  # a tenth of a second; whatever stops the study leaves a usable report

    view.say(f"   data: {study.task_info.data_source}")
    view.say(f"   cost: {describe_cost(cost_of(study.experiment, study.task_info))}")
    session = Session(study, make_engine, view, retry_failed=retry_failed, after_run=after_run)
    failure = ""
    try:
        _stages(session, until, request)
    except StageFailed as failed:
        failure = str(failed)
        view.say(failure)
    except KeyboardInterrupt:
        write_documents(store, partial=True)
        finished = sum(1 for spec, _ in store.records() if spec.kind == "train")
        raise StudyInterrupted(
            f"Stopped. {finished} finished training runs and the partial report in {folder} are kept; "
            "run the same command again to go on."
        ) from None
    except BatchlabError:
        write_documents(store, partial=True)
        raise
    else:
        if until == "sweep":
            store.decide(Decisions(complete=True))
    findings = write_documents(store, partial=not store.decisions().complete)
    view.say(f"   {format_duration(time.monotonic() - begun)} in all")
    lines = summary_lines(findings, str(folder / "report.html"), str(folder / "training_plan.json"))
    return StudyResult(folder, findings, tuple(lines), failure)


def _stages(session: Session, until: Stage, request: CapacityRequest) -> None:
    experiment, view = session.study.experiment, session.view
    view.stage("check: is this task sound?")
    checked = check_stage(session)
    if not isinstance(checked, CheckResult):
        raise StageFailed(f"The task could not be checked: {checked.reason}")
    for line in check_lines(checked):
        view.say(f"   {line}")
    if not checked.passed:
        raise StageFailed("The check failed: a sweep over this task would mislead. Fix the failed checks above.")
    if until == "check":
        return

    view.stage("capacity: which micro-batch fits?")
    if until == "capacity":
        largest = capacity_stage(session, request, sample_independent=checked.sample_independent)
        if request.variants:
            largest = replace(
                largest,
                variants=variants_stage(session, largest, request, sample_independent=checked.sample_independent),
            )
        for line in capacity_lines(largest):
            view.say(line)
        return
    capacity = capacity_stage(
        session, sweep_need(experiment, checked.sample_independent), sample_independent=checked.sample_independent
    )
    view.say(describe_capacity(capacity))
    layouts = {
        size: layout_for(session, size, capacity, sample_independent=checked.sample_independent)
        for size in experiment.batch.global_batch_sizes
    }

    view.stage("throughput: tokens per second, alone on the device", len(layouts))
    rates = _throughput(session, layouts, capacity)
    if until == "throughput":
        return

    concurrency = concurrency_stage(session, capacity.worker_bytes)
    budget = budget_stage(session, rates, concurrency)
    view.say(f"   {describe_budget(budget, session.study.experiment.unit)}")
    store = session.study.store
    store.begin_notes(notes_page(read_findings(store, partial=True), learning_rates_of(session), budget.model_dump()))
    sweep_stage(session, layouts, budget, concurrency, capacity, sample_independent=checked.sample_independent)


def run_critical(folder: Path, make_engine: EngineFactory, view: View, *, execute: bool) -> list[str]:
    """Train what settles the critical batch size of a finished study, or (`execute` False) say what that would be.

    Resumable: what is on disk is not done twice. Raises as `run_study`.
    """
    study = reopen_study(folder)

    def after_run() -> None:
        write_documents(study.store, partial=True)

    session = Session(study, make_engine, view, after_run=after_run)
    findings = read_findings(study.store, partial=False)
    if findings.recommended is None:
        raise InputError(f"The sweep in {folder} has no answer to start from; run `batchlab study` on it first.")
    need = sweep_need(study.experiment, findings.sample_independent)
    capacity = capacity_stage(session, need, sample_independent=findings.sample_independent)
    concurrency = concurrency_stage(session, capacity.worker_bytes)
    if not execute:
        return describe_runs(session, findings, concurrency, capacity)
    try:
        critical_stage(session, findings, concurrency, capacity, sample_independent=findings.sample_independent)
    except KeyboardInterrupt:
        write_documents(study.store, partial=True)
        raise StudyInterrupted(
            f"Stopped. Finished runs in {folder} are kept; run the same command again to go on."
        ) from None
    return []


def recheck(folder: Path, layout: BatchLayout, make_engine: EngineFactory, view: View) -> None:
    """Run MIN_STEPS whole steps of what one device does in a step of `layout`, where nothing has; a fresh process.

    Raises as `reopen_study`, and BatchlabError for a task that fails by itself.
    """
    study = reopen_study(folder)
    findings = read_findings(study.store, partial=False)
    if proof_of(layout, findings.runs, findings.rechecks) is not None:
        return
    session = Session(study, make_engine, view)
    spec = CapacitySpec(
        workload=study.workload,
        micro_batch_size=layout.micro_batch_size,
        grad_accum_steps=layout.grad_accum_steps,
        steps=MIN_STEPS,
        evaluation_batch_size=min(layout.micro_batch_size, LARGEST_EVALUATION_BATCH),
        optimizer=session.optimizer(layout.global_batch_size),
        device=session.device,
    )
    record = run_alone(session, [spec])[0]
    if record.outcome is Outcome.FAILED:
        raise BatchlabError(f"The task failed while its plan was tried: {record.reason}")


def _throughput(session: Session, layouts: dict[int, BatchLayout], capacity: Capacity) -> dict[int, float]:
    fitting = [layout for layout in layouts.values() if not known_oom(layout, capacity)]
    measured = throughput_stage(session, fitting)
    for size, result in measured.items():
        others = result.other_load or 0.0
        doubt = f" (other programs used {100 * others:.0f} % of the processor)" if others > BUSY_SHARE else ""
        session.view.say(f"   batch {size}: {result.tokens_per_second:,.0f} {session.study.experiment.unit}/s{doubt}")
    return {size: result.tokens_per_second for size, result in measured.items()}


def write_documents(store: Store, *, partial: bool, devices: int = 1) -> Findings:
    """outcomes.csv, results.csv, training_plan.json (where there is an answer), report.html and report.md.

    `devices`: data-parallel ones for which the report shows the time to a loss.
    """
    findings = replace(read_findings(store, partial=partial), devices=devices)
    store.write_tables()
    plan = plan_or_none(findings)
    if plan is not None:
        store.write_text("training_plan.json", plan.model_dump_json(indent=2) + "\n")
    write_report(store.path, findings, plan, store.notes())
    return findings


def read_findings(store: Store, *, partial: bool) -> Findings:
    """Everything the records on disk say, with the checks' items and the decisions taken."""
    decisions = store.decisions()
    if decisions.task_info is None:
        raise InputError(f"The study in {store.path} has measured nothing yet; run it first.")
    return assemble(
        store.experiment,
        decisions.task_info,
        store.records(),
        store.rows,
        decisions,
        planned_runs=decisions.budget.runs_planned if decisions.budget else None,
        partial=partial,
    )


def plan_or_none(findings: Findings) -> TrainingPlan | None:
    """The plan, or None while the study has no answer to plan from."""
    try:
        return make_plan(findings)
    except InputError:
        return None


def describe_plan(experiment: Experiment, task_info: TaskInfo) -> list[str]:
    """What a new study would run, for `--dry-run`; how long is only known once throughput is measured."""
    sizes = experiment.batch.global_batch_sizes
    rates = experiment.sweep.learning_rates or default_learning_rates(task_info.optimizer_family)
    budget = experiment.budget
    lines = [
        f"{experiment.name}: {experiment.task}, {task_info.parameter_count:,} parameters, on {task_info.device}",
        f"data: {task_info.data_source} ({task_info.train_samples:,} samples, {task_info.valid_samples:,} held out)",
        f"check, then capacity up to micro-batch {sizes[-1]}, then throughput of {len(sizes)} sizes",
        _describe_sweep(experiment, rates),
    ]
    if budget.token_budget is not None:
        tokens, _ = token_budget_of(
            budget.token_budget, sizes, experiment.sequence_length, experiment.evaluation.points
        )
        steps = tokens // (sizes[-1] * experiment.sequence_length)
        lines.append(f"each {tokens:,} {experiment.unit}; the largest size gets {steps} steps")
    else:
        seconds = budget.time_budget_seconds or DEFAULT_TIME_BUDGET
        lines.append(f"each as many {experiment.unit} as fit into {format_duration(seconds)}, by measured throughput")
    lines.append(f"cost: {describe_cost(cost_of(experiment, task_info))}")
    return [*lines, "nothing was written"]


def _describe_sweep(experiment: Experiment, rates: Sequence[float]) -> str:
    sizes, sweep, budget = experiment.batch.global_batch_sizes, experiment.sweep, experiment.budget
    listed = ", ".join(map(str, sizes))
    extra = Repeats(sweep.seeds, len(sweep.confirmation_seeds)).runs(len(sizes))
    if sweep.search == "grid":
        cells = f"{', '.join(f'{rate:.3g}' for rate in rates)} = {len(sizes) * len(rates)} runs"
        text = f"sweep: batch {listed} × LR {cells}, {extra} more for seeds"
        text += ", and more where a best is at an edge" if sweep.max_extensions else ""
    else:
        most = explored(len(sizes), len(rates))
        text = (
            f"sweep: batch {listed} × LR from {rates[0]:.3g} to {rates[-1]:.3g} and beyond where a best is at an end, "
            f"at most {most} runs where they promise most, {extra} more for seeds"
        )
    text += f", {budget.max_runs} at most" if budget.max_runs else ""
    return text + (f", {budget.max_tokens:,} {experiment.unit} at most together" if budget.max_tokens else "")
