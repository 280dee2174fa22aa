"""The runs that settle what a sweep leaves open about the critical batch size: more token budgets, and branches.

They live in the study's folder beside the sweep's and are resumed like them. Budgets: every judged size again at
shorter budgets, at its best learning rate and the tried ones beside it. Branches: one run at constant learning rate
from which, at chosen moments, runs go on at k times its batch, each pair on the same tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchlab.analysis.capacity import Capacity
from batchlab.analysis.findings import BatchRow, Findings
from batchlab.batch import BatchLayout
from batchlab.errors import InputError
from batchlab.experiment import Experiment, ScheduleConfig
from batchlab.record import Outcome, Record
from batchlab.resources import Concurrency
from batchlab.scaling import LearningRateRule, learning_rate_ratio
from batchlab.search.budget import quantum, token_budget_of
from batchlab.session import Session, opened_engine, run_specs
from batchlab.spec import TrainSpec, run_id
from batchlab.stages.capacity import LARGEST_EVALUATION_BATCH
from batchlab.stages.sweep import gradient_sampling
from batchlab.stages.throughput import hopeless, layout_for

FIRST_BRANCH_SEED = 1000
"""Branches see their tokens in an order of their own seed, which no run of the sweep has."""
BRANCH_DECAY = 0.5
"""A branch ends its window with this share of linear decay: losses are compared after the noise is taken out."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The run at constant learning rate in pieces, each from the end of the one before, and the branches of each."""

    trunks: tuple[TrainSpec, ...]
    branches: tuple[TrainSpec, ...]


def critical_stage(
    session: Session, findings: Findings, concurrency: Concurrency, capacity: Capacity, *, separable: bool
) -> None:
    """Execute what is missing. Raises InputError where the sweep has no answer to start from."""
    maker = RunMaker(session, findings, concurrency, capacity, separable=separable)
    budgets, chain = maker.budgets(), maker.chain()
    with opened_engine(session, concurrency.workers) as engine:
        session.view.stage(f"critical: {len(budgets)} runs at shorter budgets", len(budgets))
        run_specs(session, budgets, engine)
        session.view.stage(
            f"critical: {len(chain.trunks)} pieces of a run at constant learning rate", len(chain.trunks)
        )
        ended: list[Record] = []
        for trunk in chain.trunks:  # each begins where the one before ended
            ended += run_specs(session, [trunk], engine)
            if ended[-1].outcome is not Outcome.COMPLETED:
                break
        whole = {record.run_id for record in ended if record.outcome is Outcome.COMPLETED}
        branches = [spec for spec in chain.branches if spec.start in whole]
        session.view.stage(f"critical: {len(branches)} branches", len(branches))
        run_specs(session, branches, engine)


def describe_runs(session: Session, findings: Findings, concurrency: Concurrency, capacity: Capacity) -> list[str]:
    """What `critical --run` would train, in words, with tokens."""
    maker = RunMaker(session, findings, concurrency, capacity, separable=findings.separable)
    unit = findings.experiment.unit
    budgets, chain = maker.budgets(), maker.chain()
    tokens = " and ".join(f"{n:,}" for n in sorted({spec.token_budget for spec in budgets}))
    total = sum(spec.token_budget for spec in budgets)
    lines = [
        f"{len(budgets)} runs of {tokens} {unit} at batch {_sizes(budgets)}, each at its best learning rate and its "
        f"neighbours: {total:,} {unit}"
    ]
    if chain.branches:
        trunk, cost = chain.trunks[0], sum(spec.token_budget for spec in (*chain.trunks, *chain.branches))
        lines.append(
            f"{len(chain.trunks)} checkpoints of a run at batch {trunk.layout.global_batch_size} and constant learning "
            f"rate, and {len(chain.branches)} branches of {chain.branches[0].token_budget:,} {unit} at batch "
            f"{_sizes(chain.branches)}: {cost:,} {unit}"
        )
    return lines


def _sizes(specs: Sequence[TrainSpec]) -> str:
    return ", ".join(str(size) for size in sorted({spec.layout.global_batch_size for spec in specs}))


class RunMaker:
    """Specs of the critical stage of one study."""

    def __init__(
        self, session: Session, findings: Findings, concurrency: Concurrency, capacity: Capacity, *, separable: bool
    ) -> None:
        if findings.surface is None or findings.recommended is None or findings.token_budget is None:
            raise InputError(
                "The study's sweep has no answer yet, and the critical batch size needs one; finish it first."
            )
        self._session = session
        self._experiment: Experiment = findings.experiment
        self._rows = [row for row in findings.surface.rows if row.best is not None and not row.starved]
        self._start = next(row for row in self._rows if row.layout == findings.recommended.layout)
        self._budget = findings.token_budget
        self._family = findings.subject.optimizer_family
        self._threads = concurrency.threads
        self._capacity, self._separable = capacity, separable

    def budgets(self) -> list[TrainSpec]:
        """Every judged size at each shorter budget, at up to three learning rates."""
        experiment = self._experiment
        specs = []
        for share in sorted(experiment.critical.budgets):
            tokens, _ = token_budget_of(
                round(share * self._budget), experiment.batch.global_batch_sizes, experiment.sequence_length, 1
            )
            for row in self._rows:
                for rate in near_best(row):
                    specs.append(self._spec(row.layout, rate, experiment.sweep.first_seed, tokens, experiment.schedule))
        return specs

    def chain(self) -> Chain:
        """Pieces at constant learning rate up to each checkpoint, and branches from the end of each."""
        critical, schedule = self._experiment.critical, self._experiment.schedule
        row = self._start
        size, rate = row.global_batch_size, row.best.learning_rate if row.best else 0.0
        layouts = self._branch_layouts(size, critical.multipliers)
        one = quantum([layout.global_batch_size for layout in layouts.values()], self._experiment.sequence_length)
        window = max(one, round(critical.window * self._budget / one) * one)
        trunks: list[TrainSpec] = []
        branches: list[TrainSpec] = []
        at = 0
        for share in sorted(critical.checkpoints):
            stop = max(1, round(share * self._budget / row.layout.tokens_per_step)) * row.layout.tokens_per_step
            if stop <= at:
                continue
            warmup = min(0.5, schedule.warmup_fraction * self._budget / stop) if not trunks else 0.0
            constant = ScheduleConfig(kind="constant", warmup_fraction=warmup)
            trunk = self._spec(
                row.layout,
                rate,
                self._experiment.sweep.first_seed,
                stop - at,
                constant,
                start=run_id(trunks[-1]) if trunks else None,
                keep_end=True,
            )
            trunks.append(trunk)
            at = stop
            decayed = ScheduleConfig(
                kind="wsd", warmup_fraction=0.0, decay_fraction=BRANCH_DECAY, final_fraction=schedule.final_fraction
            )
            for multiplier, layout in layouts.items():
                branch_rate = rate * learning_rate_ratio(branch_rule(self._family), size, size * multiplier)
                for pair in range(critical.pairs):
                    seed = FIRST_BRANCH_SEED + pair
                    branches.append(
                        self._spec(layout, branch_rate, seed, window, decayed, start=run_id(trunk), sampled=False)
                    )
        return Chain(tuple(trunks), tuple(branches))

    def _branch_layouts(self, size: int, multipliers: Sequence[int]) -> Mapping[int, BatchLayout]:
        layouts = {
            k: layout_for(self._session, k * size, self._capacity, separable=self._separable)
            for k in sorted({1, *multipliers})
        }
        most = self._session.opened.subject.train_samples
        return {
            k: layout
            for k, layout in layouts.items()
            if not hopeless(layout, self._capacity) and layout.global_batch_size <= most
        }

    def _spec(
        self,
        layout: BatchLayout,
        learning_rate: float,
        seed: int,
        tokens: int,
        schedule: ScheduleConfig,
        *,
        start: str | None = None,
        keep_end: bool = False,
        sampled: bool = True,
    ) -> TrainSpec:
        experiment = self._experiment
        steps = tokens // layout.tokens_per_step
        return TrainSpec(
            workload=self._session.opened.workload,
            layout=layout,
            learning_rate=learning_rate,
            seed=seed,
            token_budget=tokens,
            schedule=schedule,
            optimizer=self._session.optimizer(layout.global_batch_size),
            evaluation_interval=tokens,
            evaluation_samples=experiment.evaluation.samples,
            evaluation_batch_size=min(LARGEST_EVALUATION_BATCH, self._capacity.max_micro_batch_size or 1),
            gradients=gradient_sampling(experiment, steps, separable=self._separable) if sampled else None,
            start=start,
            keep_end=keep_end,
            device=self._session.device.model_copy(update={"threads": self._threads}),
        )


def near_best(row: BatchRow) -> list[float]:
    """The best learning rate of a size and the tried ones on each side of it."""
    assert row.best is not None
    tried = sorted(cell.learning_rate for cell in row.cells if cell.losses)
    at = tried.index(row.best.learning_rate)
    return tried[max(0, at - 1) : at + 2]


def branch_rule(family: str) -> LearningRateRule:
    """A branch's learning rate at k × the batch: √k for Adam, k for SGD (Merrill et al. 2025, arXiv:2505.23971)."""
    return LearningRateRule.LINEAR if family == "sgd" else LearningRateRule.SQUARE_ROOT
