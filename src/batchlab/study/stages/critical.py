"""The runs that settle what a sweep leaves open about the critical batch size, trained in the study's own folder.

Sizes beyond the sweep's are decided in rounds. Each round is written down before its first run and finished before
another is decided, so an interrupted round continues as it began, whatever its runs have shown so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.findings import Findings
from batchlab.core.protocols import Engine
from batchlab.core.record import Outcome
from batchlab.core.spec import TrainSpec, run_id
from batchlab.storage.decisions import CriticalRound, Decisions
from batchlab.study.session import Session, open_engine, run_specs
from batchlab.study.stages.context import SweepContext
from batchlab.study.stages.critical_runs import Chain, RunMaker
from batchlab.words.progress import (
    NOTHING_TO_TRAIN,
    critical_title,
    describe_branches,
    describe_decays,
    describe_whole_runs,
)


def critical_stage(session: Session, findings: Findings, context: SweepContext) -> None:
    """Train what is missing. Raises InputError where the sweep has no answer to start from."""
    maker = _maker(session, findings, context, decide=True)
    for refusal in maker.refused:
        session.view.say(f"   {refusal}")
    whole, chains = maker.to_a_loss()
    with open_engine(session, context.concurrency.workers) as engine:
        if whole:
            session.view.stage(critical_title(len(whole), "whole runs"), len(whole))
            run_specs(session, whole, engine)
        if chains:
            last = _run_segments(session, engine, chains)
            session.view.stage(critical_title(len(last), "decays"), len(last))
            run_specs(session, last, engine)
            _drop_ends(session, chains)
        if branches := maker.branches():
            last = _run_segments(session, engine, [branches])
            session.view.stage(critical_title(len(last), "branches"), len(last))
            run_specs(session, last, engine)


def describe_runs(session: Session, findings: Findings, context: SweepContext) -> list[str]:
    """What `critical --run` would train now, with tokens. Raises InputError as `critical_stage`."""
    maker = _maker(session, findings, context, decide=False)
    unit = context.experiment.unit
    whole, chains = maker.to_a_loss()
    lines = []
    if missing := _missing(session, whole):
        lines.append(describe_whole_runs(missing, unit))
    if missing := _missing(session, [spec for chain in chains for spec in chain.specs]):
        lines.append(describe_decays(len(chains), missing, unit))
    branches = maker.branches()
    if branches is not None and (missing := _missing(session, branches.specs)):
        lines.append(describe_branches(branches.segments, branches.ends, missing, unit))
    return [*(lines or [NOTHING_TO_TRAIN]), *maker.refused]


def _maker(session: Session, findings: Findings, context: SweepContext, *, decide: bool) -> RunMaker:
    """The rounds decided so far, and where those are finished one more with what the finding names now."""
    store = session.study.store
    rounds = list(store.decisions().critical_rounds.values())

    def maker_of(rounds: Sequence[CriticalRound]) -> RunMaker:
        sizes = {size for one in rounds for size in one.sizes}
        longer = {share for one in rounds for share in one.longer}
        return RunMaker(session, findings, context, sizes, longer)

    decided = maker_of(rounds)
    whole, chains = decided.to_a_loss()
    if rounds and _missing(session, [*whole, *(spec for chain in chains for spec in chain.specs)]):
        return decided
    sizes, longer = decided.named()
    if rounds and not sizes and not longer:
        return decided
    another = CriticalRound(sizes=tuple(sizes), longer=tuple(longer))
    if decide:
        number = len(rounds) + 1
        another = store.decide(Decisions(critical_rounds={number: another})).critical_rounds[number]
    return maker_of([*rounds, another])


def _missing(session: Session, specs: Sequence[TrainSpec]) -> list[TrainSpec]:
    return [spec for spec in specs if session.study.store.record(run_id(spec)) is None]


def _run_segments(session: Session, engine: Engine, chains: Sequence[Chain]) -> list[TrainSpec]:
    """Run the segments of every chain, each after the one it starts from; return the ends that can start now."""
    for chain in chains:
        _forget_lost_ends(session, chain)
    segments = [segment for chain in chains for segment in chain.segments]
    session.view.stage(critical_title(len(segments), "segments"), len(segments))
    completed: set[str] = set()
    for level in range(max(len(chain.segments) for chain in chains)):
        reached = [chain.segments[level] for chain in chains if level < len(chain.segments)]
        startable = [segment for segment in reached if segment.start is None or segment.start in completed]
        records = run_specs(session, startable, engine)
        completed |= {record.run_id for record in records if record.outcome is Outcome.COMPLETED}
    return [spec for chain in chains for spec in chain.ends if spec.start in completed]


def _forget_lost_ends(session: Session, chain: Chain) -> None:
    """Repeat a finished segment where a run has yet to start from its end state and that state is gone."""
    store = session.study.store
    missing = {spec.start for spec in chain.ends if store.record(run_id(spec)) is None}
    for segment in reversed(chain.segments):
        identity = run_id(segment)
        if identity in missing and not store.has_end(identity):
            store.forget(identity)
        if store.record(identity) is None:
            missing.add(segment.start)


def _drop_ends(session: Session, chains: Sequence[Chain]) -> None:
    """Free the end states of chains whose every run is trained: a model and its optimizer for each segment."""
    store = session.study.store
    for chain in chains:
        records = [store.record(run_id(spec)) for spec in chain.specs]
        if all(record is not None and record.outcome is Outcome.COMPLETED for record in records):
            for segment in chain.segments:
                store.drop_end(run_id(segment))
