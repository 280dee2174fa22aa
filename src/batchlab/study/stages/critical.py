"""The runs that settle what a sweep leaves open about the critical batch size, trained in the study's own folder.

Which sizes beyond the sweep's are trained is decided in rounds, each written down before its first run and followed to
its end before another is decided: an interrupted round goes on as it was, whatever its runs have shown so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.findings import Findings
from batchlab.core.protocols import Engine
from batchlab.core.record import Outcome
from batchlab.core.spec import TrainSpec, run_id
from batchlab.engines.resources import Concurrency
from batchlab.storage.decisions import CriticalRound, Decisions
from batchlab.study.session import Session, open_engine, run_specs
from batchlab.study.stages.critical_runs import Chain, RunMaker


def critical_stage(
    session: Session, findings: Findings, concurrency: Concurrency, capacity: Capacity, *, sample_independent: bool
) -> None:
    """Execute what is missing. Raises InputError where the sweep has no answer to start from."""
    maker = _runs_to_make(session, findings, concurrency, capacity, sample_independent=sample_independent, decide=True)
    for refusal in maker.refused:
        session.view.say(f"   {refusal}")
    whole, chains = maker.to_a_loss()
    with open_engine(session, concurrency.workers) as engine:
        if whole:
            session.view.stage(f"critical: {len(whole)} runs for steps to a loss", len(whole))
            run_specs(session, whole, engine)
        if chains:
            _run_chains(session, engine, chains, "decays from runs at constant learning rate")
            _drop_ends(session, chains)
        if branches := maker.branches():
            _run_chains(session, engine, [branches], "branches")


def _runs_to_make(
    session: Session,
    findings: Findings,
    concurrency: Concurrency,
    capacity: Capacity,
    *,
    sample_independent: bool,
    decide: bool,
) -> RunMaker:
    """The rounds decided so far, and where those are finished one more with what the finding names now."""
    store = session.study.store
    rounds = list(store.decisions().critical_rounds.values())

    def maker_of(rounds: Sequence[CriticalRound]) -> RunMaker:
        sizes = {size for one in rounds for size in one.sizes}
        longer = {share for one in rounds for share in one.longer}
        return RunMaker(session, findings, concurrency, capacity, sizes, longer, sample_independent=sample_independent)

    decided = maker_of(rounds)
    whole, chains = decided.to_a_loss()
    if rounds and _missing(session, [*whole, *(spec for chain in chains for spec in (*chain.pieces, *chain.ends))]):
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


def _run_chains(session: Session, engine: Engine, chains: Sequence[Chain], ends: str) -> None:
    """The pieces of every chain, each after the one it begins from, then what ends there."""
    for chain in chains:
        _forget_lost_ends(session, chain)
    pieces = [piece for chain in chains for piece in chain.pieces]
    session.view.stage(f"critical: {len(pieces)} pieces of runs at constant learning rate", len(pieces))
    completed: set[str] = set()
    for level in range(max(len(chain.pieces) for chain in chains)):
        reached = [chain.pieces[level] for chain in chains if level < len(chain.pieces)]
        startable = [piece for piece in reached if piece.start is None or piece.start in completed]
        records = run_specs(session, startable, engine)
        completed |= {record.run_id for record in records if record.outcome is Outcome.COMPLETED}
    last = [spec for chain in chains for spec in chain.ends if spec.start in completed]
    session.view.stage(f"critical: {len(last)} {ends}", len(last))
    run_specs(session, last, engine)


def _forget_lost_ends(session: Session, chain: Chain) -> None:
    """Have a finished piece repeated where a run is still to begin from its end and that state is gone."""
    store = session.study.store
    missing = {spec.start for spec in chain.ends if store.record(run_id(spec)) is None}
    for piece in reversed(chain.pieces):
        identity = run_id(piece)
        if identity in missing and not store.has_end(identity):
            store.forget(identity)
        if store.record(identity) is None:
            missing.add(piece.start)


def _drop_ends(session: Session, chains: Sequence[Chain]) -> None:
    """Free the states of chains from which every run was trained: a model and its optimizer for each piece."""
    store = session.study.store
    for chain in chains:
        records = [store.record(run_id(spec)) for spec in (*chain.pieces, *chain.ends)]
        if all(record is not None and record.outcome is Outcome.COMPLETED for record in records):
            for piece in chain.pieces:
                store.drop_end(run_id(piece))


def describe_runs(session: Session, findings: Findings, concurrency: Concurrency, capacity: Capacity) -> list[str]:
    """What `critical --run` would train now, in words, with tokens."""
    maker = _runs_to_make(
        session, findings, concurrency, capacity, sample_independent=findings.sample_independent, decide=False
    )
    unit = findings.experiment.unit
    whole, chains = maker.to_a_loss()
    lines = []
    if whole := _missing(session, whole):
        tokens = " and ".join(f"{n:,}" for n in sorted({spec.token_budget for spec in whole}))
        lines.append(
            f"{len(whole)} runs of {tokens} {unit} at batch {_sizes(whole)}, each at its best learning rate and its "
            f"neighbours: {_total(whole)} {unit}"
        )
    if missing := _missing(session, [spec for chain in chains for spec in (*chain.pieces, *chain.ends)]):
        ends = [spec for spec in missing if not spec.keep_end]
        lines.append(
            f"{len(chains)} runs at constant learning rate, at batch {_sizes(ends)}, each size at its best learning "
            f"rate and its neighbours, with {len(ends)} decays out of them: {_total(missing)} {unit}"
        )
    branches = maker.branches()
    if branches is not None and (missing := _missing(session, (*branches.pieces, *branches.ends))):
        first = branches.pieces[0]
        lines.append(
            f"{len(branches.pieces)} checkpoints of a run at batch {first.layout.global_batch_size} and constant "
            f"learning rate, and {len(branches.ends)} branches of {branches.ends[0].token_budget:,} {unit} at batch "
            f"{_sizes(branches.ends)}: {_total(missing)} {unit}"
        )
    return [*(lines or ["Nothing is left to train."]), *maker.refused]


def _total(specs: Sequence[TrainSpec]) -> str:
    return f"{sum(spec.token_budget for spec in specs):,}"


def _sizes(specs: Sequence[TrainSpec]) -> str:
    return ", ".join(str(size) for size in sorted({spec.layout.global_batch_size for spec in specs}))
