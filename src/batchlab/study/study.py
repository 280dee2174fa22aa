"""A study from beginning to end: check, capacity, throughput, budget, sweep, documents.

Every stage can be interrupted and run again; what is on disk is not done twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from batchlab.analysis.assemble import assemble
from batchlab.analysis.capacity.proof import proof_of
from batchlab.analysis.findings import Findings
from batchlab.core.batch import BatchLayout
from batchlab.core.check import CheckResult
from batchlab.core.errors import BatchlabError, InputError, StudyInterrupted
from batchlab.core.experiment import Experiment
from batchlab.core.format import format_duration
from batchlab.core.protocols import View
from batchlab.core.record import Outcome
from batchlab.core.spec import MIN_STEPS, CapacitySpec
from batchlab.plan import TrainingPlan, make_plan
from batchlab.report.notes import notes_page
from batchlab.report.write import write_report
from batchlab.search.cost import cost_of
from batchlab.storage.decisions import Decisions
from batchlab.storage.store import Store
from batchlab.study.open_study import EngineFactory, open_study, reopen_study
from batchlab.study.session import Session, run_alone
from batchlab.study.stages.budget import budget_stage, concurrency_stage, decided_budget, learning_rates_of
from batchlab.study.stages.capacity import (
    LARGEST,
    LARGEST_EVALUATION_BATCH,
    CapacityRequest,
    capacity_stage,
    sweep_need,
)
from batchlab.study.stages.check import check_stage
from batchlab.study.stages.context import SweepContext
from batchlab.study.stages.critical import critical_stage, describe_runs
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.sweep import sweep_stage
from batchlab.study.stages.throughput import known_oom, layout_for, throughput_stage
from batchlab.study.stages.variants import variants_stage
from batchlab.words import progress
from batchlab.words.capacity import capacity_lines
from batchlab.words.check import check_lines
from batchlab.words.search import describe_budget, describe_cost
from batchlab.words.summary import summary_lines

Stage = Literal["check", "capacity", "throughput", "sweep"]


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The findings of a study, and its summary on the terminal."""

    folder: Path
    findings: Findings
    summary: tuple[str, ...]
    failure: str = ""  # why it ended before its last stage

    @property
    def answered(self) -> bool:
        """Whether the study recommends a configuration."""
        return self.findings.recommended is not None

    def answered_at(self, until: Stage) -> bool:
        """Whether the question of the stage `until` has an answer."""
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
    documents: bool = True,
) -> StudyResult:
    """Begin or continue the study in `folder` up to and including the stage `until`, and write its documents.

    request: what the capacity stage is asked where it is the last.
    documents: False writes none, which is half of the time of a simulated study; `write_documents` makes them later.

    Raises InputError for a wrong request, before anything is written; StudyInterrupted on Ctrl-C or SIGTERM and
    StorageFailed on a full disk, after which finished runs are kept and the report is up to date.
    """
    begun = time.monotonic()
    study = open_study(experiment, folder, make_engine, accept_edits=accept_edits)
    store = study.store

    def after_run() -> None:
        if documents:
            write_documents(store, partial=True)  # takes 0.1 s; whatever stops the study leaves a usable report

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
        after_run()
        finished = sum(1 for spec, _ in store.records() if spec.kind == "train")
        raise StudyInterrupted(
            f"Stopped. {finished} finished training runs and the partial report in {folder} are kept; "
            "run the same command again to continue."
        ) from None
    except BatchlabError:
        after_run()
        raise
    else:
        if until == "sweep":
            store.decide(Decisions(complete=True))
    partial = not store.decisions().complete
    findings = write_documents(store, partial=partial) if documents else read_findings(store, partial=partial)
    view.say(f"   {format_duration(time.monotonic() - begun)} in all")
    lines = summary_lines(findings, str(folder / "report.html"), str(folder / "training_plan.json"))
    return StudyResult(folder, findings, tuple(lines), failure)


def _stages(session: Session, until: Stage, request: CapacityRequest) -> None:
    experiment, view = session.study.experiment, session.view
    view.stage(progress.CHECK)
    checked = check_stage(session)
    if not isinstance(checked, CheckResult):
        raise StageFailed(f"The task could not be checked: {checked.reason}")
    for line in check_lines(checked):
        view.say(f"   {line}")
    if not checked.passed:
        raise StageFailed("The check failed, so a sweep would be misleading. Fix the failed checks above.")
    if until == "check":
        return

    independent = checked.sample_independent
    view.stage(progress.CAPACITY)
    if until == "capacity":
        largest = capacity_stage(session, request, sample_independent=independent)
        if request.variants:
            variants = variants_stage(session, largest, request, sample_independent=independent)
            largest = replace(largest, variants=variants)
        for line in capacity_lines(largest):
            view.say(line)
        return
    capacity = capacity_stage(session, sweep_need(experiment, independent), sample_independent=independent)
    view.say(f"   {progress.describe_capacity(capacity)}")

    sizes = experiment.batch.global_batch_sizes
    layouts = [layout_for(experiment, size, capacity, sample_independent=independent) for size in sizes]
    view.stage(progress.THROUGHPUT, len(layouts))
    measured = throughput_stage(session, [layout for layout in layouts if not known_oom(layout, capacity)])
    for size, result in measured.items():
        view.say(f"   {progress.describe_throughput(size, result, experiment.unit)}")
    if until == "throughput":
        return

    concurrency = concurrency_stage(session, capacity.worker_bytes)
    speeds = {size: result.tokens_per_second for size, result in measured.items()}
    budget = budget_stage(session, speeds, concurrency)
    view.say(f"   {describe_budget(budget, experiment.unit)}")
    store = session.study.store
    store.begin_notes(notes_page(read_findings(store, partial=True), learning_rates_of(session), budget.model_dump()))
    context = SweepContext(
        experiment=experiment,
        capacity=capacity,
        concurrency=concurrency,
        budget=budget,
        sample_independent=independent,
    )
    sweep_stage(session, context)


def run_critical(folder: Path, make_engine: EngineFactory, view: View, *, execute: bool) -> list[str]:
    """Train what settles the critical batch size of a finished study, or (`execute` False) say what that would be.

    Resumable: what is on disk is not done twice. Raises InputError where the sweep has no answer to start from,
    BatchlabError where the task fails by itself, and StudyInterrupted as `run_study`.
    """
    study = reopen_study(folder)

    def after_run() -> None:
        write_documents(study.store, partial=True)

    session = Session(study, make_engine, view, after_run=after_run)
    findings = read_findings(study.store, partial=False)
    if findings.recommended is None:
        raise InputError(f"The sweep in {folder} has no answer to start from; run `batchlab study` on it first.")
    try:
        context = _critical_context(session, findings)
        if not execute:
            return describe_runs(session, findings, context)
        critical_stage(session, findings, context)
    except StageFailed as failed:
        raise BatchlabError(str(failed)) from None
    except KeyboardInterrupt:
        write_documents(study.store, partial=True)
        raise StudyInterrupted(
            f"Stopped. Finished runs in {folder} are kept; run the same command again to continue."
        ) from None
    return []


def _critical_context(session: Session, findings: Findings) -> SweepContext:
    experiment, independent = findings.experiment, findings.sample_independent
    capacity = capacity_stage(session, sweep_need(experiment, independent), sample_independent=independent)
    return SweepContext(
        experiment=experiment,
        capacity=capacity,
        concurrency=concurrency_stage(session, capacity.worker_bytes),
        budget=decided_budget(session),
        sample_independent=independent,
    )


def recheck(folder: Path, layout: BatchLayout, make_engine: EngineFactory, view: View) -> None:
    """Run MIN_STEPS whole steps of one device's share of `layout` in a fresh process, unless something ran it already.

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
        raise BatchlabError(f"The task failed while the plan was checked: {record.reason}")


def write_documents(store: Store, *, partial: bool, devices: int = 1) -> Findings:
    """Write outcomes.csv, results.csv, report.html, report.md, and training_plan.json where there is an answer.

    devices: number of data-parallel devices for which the report shows the time to a loss. Raises InputError as
    `read_findings`, StorageFailed on a full disk.
    """
    findings = replace(read_findings(store, partial=partial), devices=devices)
    store.write_tables()
    plan = plan_or_none(findings)
    if plan is not None:
        store.write_text("training_plan.json", plan.model_dump_json(indent=2) + "\n")
    write_report(store.path, findings, plan, store.notes())
    return findings


def read_findings(store: Store, *, partial: bool) -> Findings:
    """The findings from the records and decisions on disk. Raises InputError where nothing has been measured yet."""
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
    """The training plan; None while the study has no answer."""
    try:
        return make_plan(findings)
    except InputError:
        return None
