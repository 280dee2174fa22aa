"""The runs that settle what a sweep leaves open about the critical batch size, trained in the study's own folder."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.capacity import Capacity
from batchlab.analysis.findings import Findings
from batchlab.protocols import Engine
from batchlab.record import Outcome
from batchlab.resources import Concurrency
from batchlab.session import Session, opened_engine, run_specs
from batchlab.spec import TrainSpec, run_id
from batchlab.stages.critical_runs import Chain, RunMaker


def critical_stage(
    session: Session, findings: Findings, concurrency: Concurrency, capacity: Capacity, *, separable: bool
) -> None:
    """Execute what is missing. Raises InputError where the sweep has no answer to start from."""
    maker = RunMaker(session, findings, concurrency, capacity, separable=separable)
    for refusal in maker.refused:
        session.view.say(f"   {refusal}")
    whole, chains = maker.to_a_loss()
    with opened_engine(session, concurrency.workers) as engine:
        if whole:
            session.view.stage(f"critical: {len(whole)} runs for steps to a loss", len(whole))
            run_specs(session, whole, engine)
        if chains:
            _run_chains(session, engine, chains, "decays from runs at constant learning rate")
            _drop_ends(session, chains)
        if branches := maker.branches():
            _run_chains(session, engine, [branches], "branches")


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
    store = session.opened.store
    missing = {spec.start for spec in chain.ends if store.record(run_id(spec)) is None}
    for piece in reversed(chain.pieces):
        identity = run_id(piece)
        if identity in missing and not store.has_end(identity):
            store.forget(identity)
        if store.record(identity) is None:
            missing.add(piece.start)


def _drop_ends(session: Session, chains: Sequence[Chain]) -> None:
    """Free the states of chains from which every run was trained: a model and its optimizer for each piece."""
    store = session.opened.store
    for chain in chains:
        records = [store.record(run_id(spec)) for spec in (*chain.pieces, *chain.ends)]
        if all(record is not None and record.outcome is Outcome.COMPLETED for record in records):
            for piece in chain.pieces:
                store.drop_end(run_id(piece))


def describe_runs(session: Session, findings: Findings, concurrency: Concurrency, capacity: Capacity) -> list[str]:
    """What `critical --run` would train, in words, with tokens."""
    maker = RunMaker(session, findings, concurrency, capacity, separable=findings.separable)
    unit = findings.experiment.unit
    whole, chains = maker.to_a_loss()
    lines = []
    if whole:
        tokens = " and ".join(f"{n:,}" for n in sorted({spec.token_budget for spec in whole}))
        total = sum(spec.token_budget for spec in whole)
        lines.append(
            f"{len(whole)} runs of {tokens} {unit} at batch {_sizes(whole)}, each at its best learning rate and its "
            f"neighbours: {total:,} {unit}"
        )
    if chains:
        ends = [spec for chain in chains for spec in chain.ends]
        total = sum(spec.token_budget for chain in chains for spec in (*chain.pieces, *chain.ends))
        lines.append(
            f"{len(chains)} runs at constant learning rate, at batch {_sizes(ends)}, each size at its best learning "
            f"rate and its neighbours, with {len(ends)} decays out of them: {total:,} {unit}"
        )
    if branches := maker.branches():
        first, cost = branches.pieces[0], sum(spec.token_budget for spec in (*branches.pieces, *branches.ends))
        lines.append(
            f"{len(branches.pieces)} checkpoints of a run at batch {first.layout.global_batch_size} and constant "
            f"learning rate, and {len(branches.ends)} branches of {branches.ends[0].token_budget:,} {unit} at batch "
            f"{_sizes(branches.ends)}: {cost:,} {unit}"
        )
    return [*lines, *maker.refused]


def _sizes(specs: Sequence[TrainSpec]) -> str:
    return ", ".join(str(size) for size in sorted({spec.layout.global_batch_size for spec in specs}))
