"""Specs of the critical stage of one study: runs for steps to a loss, and branches.

Steps to a loss, by the study's schedule. Cosine: every judged size again at shorter budgets. WSD: one parent run at
constant learning rate per size, and from it a decay for every shorter budget, so that what they share is trained once.
Constant: nothing, because the sweep's own runs have a loss at every evaluation. Sizes that the finding names and the
sweep did not have are also trained at the study's own budget. Each size at its best learning rate and its neighbours.

Branches: from checkpoints of one parent run at constant learning rate, runs continue at k times its batch, each pair on
the same tokens.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from batchlab.analysis.critical.steps_from_runs import COOLDOWN
from batchlab.analysis.extrapolation import Target, extrapolate
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow
from batchlab.core.batch import BatchLayout
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment, ScheduleConfig
from batchlab.core.spec import MIN_STEPS, MIN_WARMUP_STEPS, TrainSpec, run_id
from batchlab.scaling import LearningRateRule, Refused, learning_rate_ratio
from batchlab.search.budget import quantum, token_budget_of
from batchlab.study.session import Session
from batchlab.study.stages.context import SweepContext
from batchlab.words.progress import RefusedFor, refused_size
from batchlab.words.refusals import describe_refusal

FIRST_BRANCH_SEED = 1000
"""Branches take their tokens in the order of this seed and the next ones, which no run of the sweep has."""
BRANCH_DECAY = 0.5
"""The last share of a branch is a linear decay, so that losses are compared with less gradient noise in them."""
SPACING = 2.0
"""Factor between learning rates of a size that the sweep did not have, where the sweep tried one rate only."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A parent run at constant learning rate in segments, each from the end of the last, and the runs that leave it."""

    segments: tuple[TrainSpec, ...]
    ends: tuple[TrainSpec, ...]

    @property
    def specs(self) -> tuple[TrainSpec, ...]:
        """All of its runs."""
        return (*self.segments, *self.ends)


@dataclass(frozen=True, slots=True)
class SizeToTrain:
    """A batch size, the learning rates it is tried at, and its token budgets."""

    layout: BatchLayout
    learning_rates: tuple[float, ...]
    budgets: tuple[int, ...]


class RunMaker:
    """Makes the specs, also for `sizes` that the sweep did not have and `longer` budgets, as multiples of the study's.

    `refused` says which of those sizes cannot be trained. Raises InputError where the sweep has no answer yet.
    """

    def __init__(
        self,
        session: Session,
        findings: Findings,
        context: SweepContext,
        sizes: Collection[int],
        longer: Collection[float],
    ) -> None:
        if findings.surface is None or findings.recommended is None:
            raise InputError(
                "The study's sweep has no answer yet, and the critical batch size needs one; finish it first."
            )
        self._session = session
        self._findings = findings
        self._context = context
        self._experiment: Experiment = findings.experiment.model_copy(update={"schedule": findings.schedule})
        self._rows = [row for row in findings.surface.rows if row.best is not None and not row.undertrained]
        self._start = next(row for row in self._rows if row.layout == findings.recommended.layout)
        self._budget = context.budget.token_budget
        self._family = findings.task_info.optimizer_family
        self.refused: list[str] = []
        self._longer = longer
        self._sizes = [*self._judged(), *self._beyond_the_sweep(sizes)]
        self._asked = set(sizes)

    def named(self) -> tuple[list[int], list[float]]:
        """(sizes, longer budgets) that would settle what is unknown, and that are not among those here."""
        critical = self._findings.critical
        settle = critical.steps.settle if critical is not None else ()
        known = self._asked | set(self._experiment.batch.global_batch_sizes)
        longer = {run.budget for run in settle if run.budget > 1} - set(self._longer)
        return sorted({round(run.batch) for run in settle} - known), sorted(longer)

    def to_a_loss(self) -> tuple[list[TrainSpec], list[Chain]]:
        """(runs from scratch, chains of runs) for steps to a loss."""
        schedule = self._experiment.schedule
        cells = [(size, rate) for size in self._sizes if size.budgets for rate in size.learning_rates]
        if schedule.kind == "wsd":
            return [], [self._decays(size, rate) for size, rate in cells]
        seed = self._experiment.sweep.first_seed
        return [
            self._spec(size.layout, rate, seed, tokens, schedule) for size, rate in cells for tokens in size.budgets
        ], []

    def _judged(self) -> list[SizeToTrain]:
        """The sweep's sizes at other budgets."""
        experiment = self._experiment
        shares = set(experiment.critical.budgets) if experiment.schedule.kind != "constant" else set()
        shares.update(self._longer)
        budgets = [
            token_budget_of(
                round(share * self._budget), experiment.batch.global_batch_sizes, experiment.sequence_length, 1
            )[0]
            for share in sorted(shares)
        ]
        return [
            SizeToTrain(row.layout, tuple(near_best(row)), tuple(n for n in budgets if self._enough(row.layout, n)))
            for row in self._rows
        ]

    def _beyond_the_sweep(self, wanted: Collection[int]) -> list[SizeToTrain]:
        """Sizes that would settle what is unknown, as far as they can be trained."""
        experiment = self._experiment
        shares = {*experiment.critical.budgets, 1.0} if experiment.schedule.kind != "constant" else {1.0}
        sizes = []
        for size in sorted(wanted):
            layout = self._context.layout(size)
            rates = self._extrapolated_rates(size)
            if self._context.known_oom(layout):
                self._refuse(size, "memory")
            elif size > self._most_samples:
                self._refuse(size, "data")
            elif not self._enough(layout, self._budget):
                self._refuse(size, "steps")
            elif isinstance(rates, Refused):
                self._refuse(size, "learning rate", describe_refusal(rates.reason))
            else:
                step = layout.tokens_per_step
                budgets = (max(1, round(share * self._budget / step)) * step for share in sorted(shares))
                sizes.append(SizeToTrain(layout, rates, tuple(n for n in budgets if self._enough(layout, n))))
        return sizes

    def _refuse(self, size: int, reason: RefusedFor, detail: str = "") -> None:
        self.refused.append(refused_size(size, reason, self._budget, self._experiment.unit, detail))

    def _extrapolated_rates(self, size: int) -> tuple[float, ...] | Refused:
        """The learning rate extrapolated from the sweep's sizes, and one on each side of it, spaced as the sweep's."""
        extrapolated = extrapolate(self._findings, Target(global_batch_size=size))
        if isinstance(extrapolated, Refused):
            return extrapolated
        near = near_best(self._start)
        spacing = near[-1] / near[-2] if len(near) > 1 else SPACING
        middle = extrapolated.learning_rate.value
        return (middle / spacing, middle, middle * spacing)

    def _enough(self, layout: BatchLayout, tokens: int) -> bool:
        """Whether so many tokens are enough steps to judge a size; warm-up is the study's in WSD, else the run's."""
        schedule = self._experiment.schedule
        warmup = schedule.warmup_fraction * (self._budget if schedule.kind == "wsd" else tokens)
        steps, warmup_steps = tokens // layout.tokens_per_step, warmup / layout.tokens_per_step
        return steps >= MIN_STEPS and (warmup == 0 or warmup_steps >= MIN_WARMUP_STEPS)

    def _decays(self, size: SizeToTrain, rate: float) -> Chain:
        """For each budget a decay to its end, from one parent run that follows the study's schedule until there."""
        schedule, step = self._experiment.schedule, size.layout.tokens_per_step
        starts = {}
        for tokens in sorted(size.budgets):
            start = round((1 - schedule.decay_fraction) * tokens / step) * step
            if 0 < start < tokens:
                starts[start] = tokens
        segments = self._segments(size.layout, rate, sorted(starts))
        cooldown = ScheduleConfig(
            kind="wsd", warmup_fraction=0.0, decay_fraction=COOLDOWN, final_fraction=schedule.final_fraction
        )
        seed = self._experiment.sweep.first_seed
        ends = [
            self._spec(size.layout, rate, seed, tokens - start, cooldown, start=run_id(segment))
            for segment, (start, tokens) in zip(segments, sorted(starts.items()), strict=True)
        ]
        return Chain(tuple(segments), tuple(ends))

    def _segments(self, layout: BatchLayout, rate: float, stops: Sequence[int]) -> list[TrainSpec]:
        """One run at constant learning rate after the study's warm-up, with its state kept at each of `stops`."""
        warmup = self._experiment.schedule.warmup_fraction * self._budget
        segments: list[TrainSpec] = []
        at = 0
        for stop in stops:
            share = min(0.5, warmup / stop) if not segments else 0.0
            segments.append(
                self._spec(
                    layout,
                    rate,
                    self._experiment.sweep.first_seed,
                    stop - at,
                    ScheduleConfig(kind="constant", warmup_fraction=share),
                    start=run_id(segments[-1]) if segments else None,
                    keep_end=True,
                )
            )
            at = stop
        return segments

    def branches(self) -> Chain | None:
        """A parent run at the recommended size and branches from its checkpoints; None where no larger size can run."""
        critical, row = self._experiment.critical, self._start
        size, rate = row.global_batch_size, row.best.learning_rate if row.best else 0.0
        layouts = self._branch_layouts(size, critical.multipliers)
        if len(layouts) < 2:
            return None
        one = quantum([layout.global_batch_size for layout in layouts.values()], self._experiment.sequence_length)
        window = max(one, round(critical.window * self._budget / one) * one)
        step = row.layout.tokens_per_step
        stops = sorted({max(1, round(share * self._budget / step)) * step for share in critical.checkpoints})
        segments = self._segments(row.layout, rate, stops)
        decayed = ScheduleConfig(
            kind="wsd",
            warmup_fraction=0.0,
            decay_fraction=BRANCH_DECAY,
            final_fraction=self._experiment.schedule.final_fraction,
        )
        ends = [
            self._spec(
                layout,
                rate * learning_rate_ratio(branch_rule(self._family), size, size * multiplier),
                FIRST_BRANCH_SEED + pair,
                window,
                decayed,
                start=run_id(segment),
                sampled=False,
            )
            for segment in segments
            for multiplier, layout in layouts.items()
            for pair in range(critical.pairs)
        ]
        return Chain(tuple(segments), tuple(ends))

    @property
    def _most_samples(self) -> float:
        """No batch has more samples than the data."""
        samples = self._session.study.task_info.train_samples
        return math.inf if samples is None else samples

    def _branch_layouts(self, size: int, multipliers: Sequence[int]) -> Mapping[int, BatchLayout]:
        layouts = {k: self._context.layout(k * size) for k in sorted({1, *multipliers})}
        most = self._most_samples
        return {
            k: layout
            for k, layout in layouts.items()
            if not self._context.known_oom(layout) and layout.global_batch_size <= most
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
        points = experiment.evaluation.points if start is None and not keep_end and schedule.kind == "constant" else 1
        return TrainSpec(
            workload=self._session.study.workload,
            layout=layout,
            learning_rate=learning_rate,
            seed=seed,
            token_budget=tokens,
            schedule=schedule,
            optimizer=self._session.optimizer(layout.global_batch_size, learning_rate),
            evaluation_interval=max(1, steps // points) * layout.tokens_per_step,
            evaluation_samples=experiment.evaluation.samples,
            evaluation_batch_size=self._context.evaluation_batch_size,
            gradients=self._context.gradient_sampling(layout, steps) if sampled else None,
            start=start,
            keep_end=keep_end,
            device=self._session.device.model_copy(update={"threads": self._context.concurrency.threads}),
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
