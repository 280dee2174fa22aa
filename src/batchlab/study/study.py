"""A study from beginning to end: check, capacity, throughput, budget, sweep, documents.

Every stage can be interrupted and run again; what is on disk is not done twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from batchlab.analysis.capacity.proof import proof_of
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.throughput import scaling_points
from batchlab.core.batch import BatchLayout
from batchlab.core.check import CheckResult
from batchlab.core.clock import SYSTEM_CLOCK, Clock
from batchlab.core.errors import BatchlabError, InputError, StudyInterrupted
from batchlab.core.experiment import Experiment
from batchlab.core.files import Files
from batchlab.core.format import format_duration
from batchlab.core.protocols import View
from batchlab.core.record import Outcome
from batchlab.core.spec import LARGEST_EVALUATION_BATCH, MIN_STEPS, CapacitySpec
from batchlab.engines.hosts import Host
from batchlab.search.cost import cost_of
from batchlab.storage.atomic import storage_errors
from batchlab.storage.decisions import Decisions
from batchlab.storage.files import DISK
from batchlab.storage.store import Store
from batchlab.study.documents import Documents, read_findings
from batchlab.study.engines import EngineFactory
from batchlab.study.open_study import open_study, reopen_study
from batchlab.study.session import Session, run_alone
from batchlab.study.stages.baseline import baseline_stage
from batchlab.study.stages.budget import budget_stage, concurrency_stage, decided_budget, learning_rates_of
from batchlab.study.stages.capacity import capacity_stage, checked_for_memory, search_line, sweep_need
from batchlab.study.stages.capacity_request import LARGEST, CapacityRequest
from batchlab.study.stages.check import check_stage
from batchlab.study.stages.context import SweepContext
from batchlab.study.stages.critical import critical_stage, describe_runs
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.speed_variants import speed_variants_stage
from batchlab.study.stages.sweep import sweep_stage
from batchlab.study.stages.throughput import compared_layouts, known_oom, layout_for, throughput_stage
from batchlab.study.stages.variants import variants_stage
from batchlab.words import progress
from batchlab.words.capacity import capacity_lines
from batchlab.words.check import check_lines, checked_again
from batchlab.words.damage import repaired_line
from batchlab.words.devices import describe_scaling
from batchlab.words.search import describe_budget, describe_cost
from batchlab.words.speed import variant_lines
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
                return self.answered and not self.failure


def run_study(
    experiment: Experiment,
    folder: Path,
    make_engine: EngineFactory,
    view: View,
    *,
    until: Stage = "sweep",
    request: CapacityRequest = LARGEST,
    speed_variants: bool = False,
    accept_edits: bool = False,
    retry_failed: bool = False,
    hosts: Sequence[Host] = (),
    files: Files = DISK,
    clock: Clock = SYSTEM_CLOCK,
    write_documents: bool = True,
) -> StudyResult:
    """Begin or continue the study in `folder` up to and including the stage `until`, and write its documents.

    request: what the capacity stage is asked where it is the last. speed_variants: where throughput is the last, also
    time other precisions and compilation. hosts: where the engines made run workers; empty: on this machine.
    write_documents: False for a simulation of disks.

    Raises InputError for a wrong request, before anything is written; StudyInterrupted on Ctrl-C or SIGTERM and
    StorageFailed where a disk has no space for records. Finished runs are kept, and whatever ends the study, its
    documents are written as far as the disk allows.
    """
    begun = clock.monotonic()
    study = open_study(
        experiment, folder, make_engine, accept_edits=accept_edits, hosts=hosts, files=files, clock=clock
    )
    store = study.store
    for damaged in study.repaired:
        view.say(f"   {repaired_line(damaged)}")
    if study.edited:
        view.say(f"   {checked_again(study.edited)}")
    documents = Documents(store, view, write=write_documents)
    view.say(f"   data: {study.task_info.data_source}")
    # The largest micro-batch is one answer, and its documents are written once; half of it would be none.
    kept = None if until == "capacity" else documents
    session = Session(study, make_engine, view, retry_failed=retry_failed, documents=kept, hosts=hosts)
    cost = (
        search_line(session, request)
        if until == "capacity"
        else describe_cost(cost_of(study.experiment, study.task_info))
    )
    view.say(f"   cost: {cost}")
    failure = ""
    try:
        with storage_errors(store.path):
            stops = experiment.baseline is None or experiment.baseline.if_missed == "stop"
            _stages(session, until, request, speed_variants=speed_variants, baseline_stops=stops)
    except StageFailed as failed:
        failure = str(failed)
        view.say(failure)
    except KeyboardInterrupt:
        _save(documents, store)
        with storage_errors(store.path):
            finished = sum(1 for spec, _ in store.records() if spec.kind == "train")
        raise StudyInterrupted(
            f"Stopped. {finished} finished training runs and the partial report in {folder} are kept; "
            "run the same command again to continue."
        ) from None
    except BaseException:
        _save(documents, store)
        raise
    with storage_errors(store.path):
        if until == "sweep" and not failure:
            store.decide(Decisions(complete=True))
        findings = documents.save()
    view.say(f"   {format_duration(clock.monotonic() - begun)} in all")
    report, plan = str(folder / "report.html"), str(folder / "training_plan.json")
    lines = summary_lines(findings, report, plan, written=documents.up_to_date)
    return StudyResult(folder, findings, tuple(lines), failure)


def _save(documents: Documents, store: Store) -> None:
    """Write the documents of a study that something else has ended: that error is the one to be told."""
    with suppress(BatchlabError), storage_errors(store.path):
        documents.save()


def _stages(
    session: Session, until: Stage, request: CapacityRequest, *, speed_variants: bool, baseline_stops: bool
) -> None:
    experiment, view = session.study.experiment, session.view
    view.stage(progress.CHECK)
    checked = checked_for_memory(session, request) if until == "capacity" else check_stage(session)
    if not isinstance(checked, CheckResult):
        raise StageFailed(f"The task could not be checked: {checked.reason}")
    for line in check_lines(checked):
        view.say(f"   {line}")
    if not checked.passed:
        raise StageFailed(
            "The task failed, so nothing can be measured. Fix what the check names above, and run this again."
            if until == "capacity"
            else "The check failed, so a sweep would be misleading. Fix the failed checks above, and run this again."
        )
    if until == "check":
        return

    independent = checked.sample_independent
    if not independent and experiment.device.most_devices > 1:
        raise StageFailed(
            f"This model mixes the samples of a batch, so {experiment.device.most_devices} devices, each with its own "
            "share, would train another model than one device. Omit --devices."
        )
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

    experiment = experiment.within_memory(capacity.max_micro_batch_size)
    session = replace(session, study=replace(session.study, experiment=experiment))
    sizes = experiment.batch.global_batch_sizes
    if experiment.batch.open_end:
        view.say(f"   {progress.open_axis(sizes)}")
    layouts = [layout_for(experiment, size, capacity, sample_independent=independent) for size in sizes]
    view.stage(progress.THROUGHPUT, len(layouts))
    measured = throughput_stage(session, [layout for layout in layouts if not known_oom(layout, capacity)])
    for size, result in measured.items():
        view.say(f"   {progress.describe_throughput(size, result, experiment.unit)}")
    if compared := compared_layouts(experiment, [layout for layout in layouts if layout.global_batch_size in measured]):
        throughput_stage(session, compared)
        for point in scaling_points(session.study.store.records()):
            view.say(f"   {describe_scaling(point, experiment.unit)}")
    if until == "throughput":
        if speed_variants and measured:
            timed = next(layout for layout in layouts if layout.global_batch_size == max(measured))
            for line in variant_lines(speed_variants_stage(session, timed), timed, experiment.unit):
                view.say(line)
        return

    concurrency = concurrency_stage(session, capacity.worker_bytes)
    speeds = {size: result.tokens_per_second for size, result in measured.items()}
    budget = budget_stage(session, speeds, concurrency)
    view.say(f"   {describe_budget(budget, experiment.unit)}")
    if session.documents is not None:
        session.documents.begin_notes(learning_rates_of(session), budget.model_dump())
    context = SweepContext(
        experiment=experiment,
        capacity=capacity,
        concurrency=concurrency,
        budget=budget,
        sample_independent=independent,
        repeatable=checked.repeatable,
    )
    baseline_stage(session, context, stops=baseline_stops)
    sweep_stage(session, context)


def run_critical(folder: Path, make_engine: EngineFactory, view: View, *, execute: bool) -> list[str]:
    """Train what settles the critical batch size of a finished study, or (`execute` False) say what that would be.

    Resumable: what is on disk is not done twice. Raises InputError where the sweep has no answer to start from,
    BatchlabError where the task fails by itself, and StudyInterrupted as `run_study`.
    """
    study = reopen_study(folder)
    documents = Documents(study.store, view)
    session = Session(study, make_engine, view, documents=documents)
    findings = read_findings(study.store)
    if findings.recommended is None:
        raise InputError(f"The sweep in {folder} has no answer to start from; run `batchlab study` on it first.")
    if findings.run_seconds is not None:
        raise InputError(
            f"The sweep in {folder} gave every batch size the same time (--run-time), and the critical batch size is "
            "about equal tokens; study the task with --token-budget."
        )
    if (integration := study.task_info.integration) is not None:
        if execute:
            raise InputError(progress.no_further_runs(integration))
        return [progress.no_further_runs(integration)]
    try:
        context = _critical_context(session, findings)
        if not execute:
            return describe_runs(session, findings, context)
        critical_stage(session, findings, context)
    except StageFailed as failed:
        raise BatchlabError(str(failed)) from None
    except KeyboardInterrupt:
        raise StudyInterrupted(
            f"Stopped. Finished runs in {folder} are kept; run the same command again to continue."
        ) from None
    finally:
        documents.finish()
    return []


def _critical_context(session: Session, findings: Findings) -> SweepContext:
    experiment, independent = findings.experiment, findings.sample_independent
    need = sweep_need(session.study.experiment, independent)
    capacity = capacity_stage(session, need, sample_independent=independent)
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
    findings = read_findings(study.store)
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
