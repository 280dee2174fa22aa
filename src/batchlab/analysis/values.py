"""The small values that the analysis is made of: intervals, runs, cells, rows. Nothing here computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from batchlab.core.batch import BatchLayout
from batchlab.core.pairing import Pairing
from batchlab.core.record import MeasuredMemory, MetricRow, Outcome

Place = tuple[int, float, float]
"""Where a cell lies: global batch size, learning rate, and warm-up as a share of the run."""

TokensAt = Callable[[int], int | None]
"""Tokens of a run of the sweep by its global batch size: the same at every size, or those of an equal time."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with a two-sided 95 % interval; `n` independent repetitions stand behind it."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1


@dataclass(frozen=True, slots=True)
class ThroughputPoint:
    layout: BatchLayout
    tokens_per_second: Interval  # median, lowest and highest block
    step_seconds: float
    warmup_seconds: float
    peak_bytes: int | None
    other_load: float | None = None  # share of the processor, or of the card, that other programs used meanwhile
    stable: bool | None = None  # whether the speed had stopped changing
    issuing_share: float | None = None  # of a step, in which the host gives the device its work
    achieved_flops: float | None = None  # operations per second, by 3 × those of a forward pass
    peak_flops: float | None = None  # of a large matrix product, measured
    datasheet_flops: float | None = None  # dense, in the same precision

    @property
    def mfu(self) -> float | None:
        """Share of the measured peak."""
        return self.achieved_flops / self.peak_flops if self.achieved_flops and self.peak_flops else None

    @property
    def launch_bound(self) -> bool:
        """Whether starting kernels takes longer than running them."""
        return self.issuing_share is not None and self.issuing_share > LAUNCH_BOUND


LAUNCH_BOUND = 0.9
"""Share of a step in which the host gives the device work; what is left is the device's last kernels alone."""


@dataclass(frozen=True, slots=True)
class ThroughputFinding:
    points: tuple[ThroughputPoint, ...]
    fastest: int | None  # global batch size
    knee: int | None  # smallest global batch size within 10 % of the fastest
    falls_off: tuple[int, ...] = ()  # sizes more than 20 % slower than a smaller one: host-memory fallback, slow kernel
    disturbed: tuple[int, ...] = ()  # sizes measured while other programs used the processor or the card

    def at(self, global_batch_size: int) -> ThroughputPoint | None:
        return next((p for p in self.points if p.layout.global_batch_size == global_batch_size), None)


@dataclass(frozen=True, slots=True)
class LossSpike:
    """One spike of a run's training loss (analysis/dynamics/spikes.py); `height` nats above its running median."""

    run_id: str
    step: int
    tokens: int
    loss: float
    height: float
    rows: int


@dataclass(frozen=True, slots=True)
class StepEvent:
    """Something broke at or before this step; `names` are the readings that were not finite."""

    run_id: str
    step: int
    tokens: int
    what: Literal["not finite", "diverged"]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """How a run trained, made of its rows (analysis/dynamics/course.py)."""

    snapshots: tuple[int, ...] = ()  # tokens at its diagnostic snapshots
    readings: tuple[str, ...] = ()  # names of what they read, in the model's order
    spikes: tuple[LossSpike, ...] = ()
    broken: StepEvent | None = None  # the first step with numbers that were not finite
    judged: bool = False  # it has enough rows for spikes to be found in them


@dataclass(frozen=True, slots=True)
class Run:
    """One training run as the analysis sees it."""

    run_id: str
    layout: BatchLayout
    learning_rate: float
    seed: int
    outcome: Outcome
    reason: str
    steps: int
    tokens: int
    undertrained: bool
    val_loss: float | None
    train_loss: float | None
    clipped_fraction: float | None
    epochs: float
    seconds: float
    tokens_per_second: float | None
    peak_bytes: int | None
    pairing: Pairing
    measured: MeasuredMemory | None = None  # what peak_bytes counts
    peak_in_use_bytes: int | None = None
    resumed: int = 0
    val_error: float | None = None  # standard error of val_loss over the held-out samples
    val_draws_sd: float | None = None  # of val_loss over the random numbers that the loss draws; None: it draws none
    best_val_loss: float | None = None
    grad_norm: float | None = None  # mean over the last tenth of the run, before clipping
    val_curve: tuple[tuple[int, float], ...] = ()  # (tokens, validation loss) at the shared token counts
    confirms: bool = False  # it has a confirmation seed: it chose nothing
    course: Course = Course()
    warmup_fraction: float = 0.0  # of its tokens, as asked for; a floor in steps may make it longer
    rows: tuple[MetricRow, ...] = ()  # in a surface, of the one run of each size that is drawn in full

    @property
    def global_batch_size(self) -> int:
        return self.layout.global_batch_size


@dataclass(frozen=True, slots=True)
class Cell:
    """All seeds at one (global batch size, learning rate, warm-up)."""

    global_batch_size: int
    learning_rate: float
    runs: tuple[Run, ...]
    warmup_fraction: float = 0.0

    @property
    def place(self) -> Place:
        return self.global_batch_size, self.learning_rate, self.warmup_fraction

    @property
    def losses(self) -> tuple[float, ...]:
        return tuple(r.val_loss for r in self.runs if r.outcome is Outcome.COMPLETED and r.val_loss is not None)

    @property
    def quoted_runs(self) -> tuple[Run, ...]:
        """Those whose mean is quoted: the runs with confirmation seeds where it has any, else all that have a loss."""
        done = tuple(r for r in self.runs if r.outcome is Outcome.COMPLETED and r.val_loss is not None)
        return tuple(run for run in done if run.confirms) or done

    @property
    def quoted_loss(self) -> float | None:
        """The one loss of the cell that documents give."""
        losses = [run.val_loss for run in self.quoted_runs if run.val_loss is not None]
        return sum(losses) / len(losses) if losses else None


class Comparing(StrEnum):
    """How the mean losses of two cells are compared."""

    PAIRED = "paired"  # over the seeds that both have
    POOLED = "pooled"  # with one standard deviation for all cells
    WELCH = "welch"  # one of the two has a spread of its own


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean loss of one cell above another's, in nats. `error`: its standard error, with `df` degrees of freedom.

    `variance`: of the difference at one seed. `n`: seeds in pairs, else those of the cell with fewer. `clean`: the seed
    that chose the cells is not among them.
    """

    value: float
    error: float
    df: float
    variance: float
    n: int
    by: Comparing
    clean: bool = False


class FitProblem(StrEnum):
    """Why a local fit in log2 LR says nothing of a batch size's best learning rate."""

    TOO_FEW = "too_few"  # fewer than three learning rates with a finite loss
    AT_EDGE = "at_edge"  # the best cell is the first or last one with a finite loss
    NOT_CONVEX = "not_convex"
    OUTSIDE = "outside"  # the fitted best is outside the learning rates tried
    TOO_FAR = "too_far"  # the fitted best is too many doublings from the best cell


@dataclass(frozen=True, slots=True)
class NoFit:
    """`finite` learning rates have a finite loss; `doublings` lie between the best cell and the fitted best."""

    problem: FitProblem
    finite: int
    doublings: float | None = None


@dataclass(frozen=True, slots=True)
class LrFit:
    """Local fit in log2 LR through the cells around the best one of a batch size. `no_fit` None: it is valid."""

    no_fit: NoFit | None
    best_learning_rate: float | None = None
    best_loss: float | None = None
    curvature: float | None = None  # nats per doubling²
    learning_rates: tuple[float, ...] = ()  # the cells used
    doublings: float | None = None  # standard error of the best learning rate
    cautious_learning_rate: float | None = None  # with the least expected cost: below the best, the less it is known
    next_learning_rate: float | None = None  # where the fit is not valid: the run that would help most

    @property
    def valid(self) -> bool:
        return self.no_fit is None


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One global batch size, judged at its own best learning rate; `cells` are those at its best warm-up."""

    global_batch_size: int
    layout: BatchLayout
    cells: tuple[Cell, ...]
    best: Cell | None
    val_loss: Interval | None
    fit: LrFit
    edge: Literal["", "low", "high"]
    undertrained: bool
    tied: bool
    tokens_per_second: float | None
    hours: float | None  # budget ÷ measured tokens/s
    warmup_fraction: float = 0.0  # of its cells
    above_best: Difference | None = None  # its best cell's loss above the best cell's; None: noise was not measured


@dataclass(frozen=True, slots=True)
class Inferred:
    """The surrogate's loss of a cell that was not run, with its standard deviation in percent of the loss."""

    global_batch_size: int
    learning_rate: float
    val_loss: float
    percent: float


@dataclass(frozen=True, slots=True)
class AllUndertrained:
    """No batch size is judged: the `sizes` with a finite loss had too few steps."""

    sizes: int


@dataclass(frozen=True, slots=True)
class NoFiniteLoss:
    """No batch size is judged: none of the runs has a finite loss. `outcomes`: how they ended, each named once."""

    runs: int
    outcomes: tuple[Outcome, ...]


NoBest = AllUndertrained | NoFiniteLoss


@dataclass(frozen=True, slots=True)
class SurfaceFinding:
    """Loss over batch × learning rate."""

    rows: tuple[BatchRow, ...]
    best: BatchRow | None
    noise_sd: float | None  # pooled over seeds, nats
    noise_df: int
    noise_seeds: int
    correlation: float | None  # between paired runs of different batch sizes, over seeds
    pairing: Pairing
    resolved: bool  # whether noise was measured at all (n ≥ 2 seeds at two cells)
    no_best: NoBest | None = None  # None: there is a best
    tied_cells: tuple[Cell, ...] = ()  # every (batch, learning rate) within noise of the best
    paired_seeds: int = 0  # most seeds over which a size was compared with the best in pairs; 0: unpaired
    confirmation_seeds: int = 0  # of the best cell, from which its loss is quoted; they had no part in the choice
    inferred: tuple[Inferred, ...] = ()  # cells that were not run
    evaluation_sd: float | None = None  # what other held-out samples would change, nats; not the seeds
    draws_sd: float | None = None  # the part of evaluation_sd that other random numbers of the loss would change
    fitted: bool = False  # the best is the lowest of the fitted surface among the tied cells, not the lowest mean
    spreads: tuple[float, float] | None = None  # lowest and highest sd of a cell over seeds, where they differ

    @property
    def tied(self) -> tuple[BatchRow, ...]:
        return tuple(row for row in self.rows if row.tied)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Training losses of the batch sizes where `axis` (tokens, steps, hours) stands at the same value."""

    axis: str
    at: float
    losses: tuple[tuple[int, float | None], ...]  # global batch size, mean over the last tenth of the way


@dataclass(frozen=True, slots=True)
class DiagnosticsFinding:
    """What was looked at while runs trained; the readings themselves stay in the rows of the runs that are shown."""

    snapshots: tuple[int, ...]  # token counts, the same for every batch size
    parts: Mapping[str, tuple[str, ...]]  # quantity → parts of the model, in its order
    spikes: tuple[LossSpike, ...]
    events: tuple[StepEvent, ...]
    judged_runs: int  # runs with enough rows to have spikes found in them
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """A property of the environment in which the records differ, by its name in `Environment`, with its values."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailedProbe:
    """A check, trace, capacity probe or throughput measurement that did not complete."""

    kind: str
    run_id: str
    outcome: Outcome
    reason: str
