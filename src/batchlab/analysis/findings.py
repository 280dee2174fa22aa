"""What the records say: plain values that the report, the plan and the summary are written from.

Nothing here computes; each part is made by the module of its name (memory, throughput, loss_surface). Every sentence of
the documents is built from these numbers, and every estimate carries its n and its interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from batchlab.analysis.calibration import Calibration
from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.capacity.proof import Recheck
from batchlab.analysis.critical.finding import CriticalFinding
from batchlab.analysis.sweep.baseline import BaselineFinding
from batchlab.analysis.sweep.retries import Retried
from batchlab.analysis.sweep.warmups import WarmupFinding
from batchlab.analysis.values import (
    DiagnosticsFinding,
    EnvironmentDifference,
    FailedProbe,
    Run,
    SurfaceFinding,
    ThroughputFinding,
)
from batchlab.analysis.verdict import Cost, Recommendation, TokenSlope
from batchlab.core.check import CheckItem
from batchlab.core.experiment import Experiment, ScheduleConfig
from batchlab.core.record import Environment, TaskInfo
from batchlab.scaling import Optimum
from batchlab.storage.decisions import SearchStop
from batchlab.storage.sealed import DamagedFile


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything the documents are written from: numbers and typed reasons, no sentences."""

    experiment: Experiment
    task_info: TaskInfo
    environment: Environment | None
    environments_differ: tuple[EnvironmentDifference, ...]
    checks: tuple[CheckItem, ...]
    sample_independent: bool
    token_budget: int | None  # of every run; at equal time, of those of the best batch size
    memory: Capacity | None
    throughput: ThroughputFinding | None
    surface: SurfaceFinding | None
    diagnostics: DiagnosticsFinding
    runs: tuple[Run, ...]
    recommended: Recommendation | None
    recommendations: tuple[Recommendation, ...]
    failed_probes: tuple[FailedProbe, ...]
    planned_runs: int | None = None
    partial: bool = False
    accepted_edits: tuple[str, ...] = field(default=())
    search_stopped: SearchStop | None = None  # None: a grid, or not ended
    earlier_optima: tuple[Optimum, ...] = ()  # of the study that the search started from
    critical: CriticalFinding | None = None
    rechecks: tuple[Recheck, ...] = ()  # of layouts that no training run had
    warmups: WarmupFinding | None = None  # None: one warm-up for all batch sizes
    baseline: BaselineFinding | None = None  # None: there is none, or it has no run yet
    retried: tuple[Retried, ...] = ()  # diverged cells that were tried again
    damaged: tuple[DamagedFile, ...] = ()  # files that are not what was written; what rests on them is left out
    slope: TokenSlope | None = None  # of the loss against tokens, at the budget
    costs: tuple[Cost, ...] = ()  # of every judged batch size against the best cell
    devices: int = 1  # data-parallel ones for which somebody wants the time to a loss
    run_seconds: float | None = None  # of training that every run has; None: equal tokens
    tokens_by_size: Mapping[int, int] = field(default_factory=dict)  # of a run, at equal time
    calibrations: tuple[Calibration, ...] = ()  # of devices that share a batch

    def schedule_at(self, global_batch_size: int) -> ScheduleConfig:
        """The schedule at this batch size, with its best warm-up where several were tried."""
        found = self.warmups.at(global_batch_size) if self.warmups else None
        shares = self.experiment.warmup_fractions
        return self.experiment.schedule_with(found.taken if found else shares[0])

    @property
    def schedule(self) -> ScheduleConfig:
        """The schedule of what is recommended; without an answer, that of the best batch size or of the first one."""
        best = self.surface.best if self.surface else None
        size = self.experiment.batch.global_batch_sizes[0] if best is None else best.global_batch_size
        return self.schedule_at(self.recommended.layout.global_batch_size if self.recommended else size)

    def calibrated(self, global_batch_size: int, devices: int) -> Calibration | None:
        """What was measured of so many devices that share this batch."""
        return next(
            (
                found
                for found in self.calibrations
                if (found.layout.global_batch_size, found.layout.data_parallel_size) == (global_batch_size, devices)
            ),
            None,
        )

    def tokens_at(self, global_batch_size: int) -> int | None:
        """Tokens of a run at this batch size."""
        return self.tokens_by_size.get(global_batch_size, self.token_budget)
