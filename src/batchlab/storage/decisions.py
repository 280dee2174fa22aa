"""The measured choices of a study that change its numbers: decisions.json.

Each is made once, by whichever process comes first, and read by every later session, so that a resumed study continues
exactly as it began.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from batchlab.core.batch import Frozen
from batchlab.core.record import Outcome, TaskInfo


class LimitKind(StrEnum):
    """What a memory limit bounds."""

    WORKER_DATA = "worker_data"  # VmData of a worker above its warmed-up baseline, by a soft RLIMIT_DATA
    ALLOCATOR = "allocator"  # of the device, as asked with --memory-limit
    FREE_HOST_MEMORY = "free_host_memory"  # when it was first read; no limit was asked for
    DEVICE_MEMORY = "device_memory"
    UNIFIED_MEMORY = "unified_memory"  # shared with the system: what a framework lets a run use of it
    OTHER_DEVICE = "other_device"  # a CUDA device that is not here, by the rules of its caching allocator


class SlowProbe(Frozen):
    """A size that was not run because its probe would take too long, far above the throughput knee."""

    predicted: int = Field(description="the largest micro-batch size by prediction")
    seconds: float = Field(description="estimated for its probe, from smaller ones")
    knee: int = Field(description="size above which samples hardly become faster")


class CapacityDecision(Frozen):
    """Where a search for the largest micro-batch ended, and what bounded it."""

    searched_up_to: int = Field(description="no larger size was of interest")
    max_micro_batch_size: int | None = Field(default=None, description="None: nothing fits")
    smallest_failed: int | None = None
    limit_bytes: int | None = None
    limit_is: LimitKind | None = Field(default=None, description="what the limit bounds")
    headroom_bytes: int = Field(default=0, description="of the limit, kept free on purpose")
    grad_accum_steps: int | None = Field(default=None, description="of the probes; None: of any")
    reserved: bool = Field(default=False, description="bytes are those that a caching allocator reserves")
    too_slow: SlowProbe | None = Field(default=None, description="why it was searched no further; None: not for time")
    varies: bool = Field(default=False, description="memory depends on the values in a batch")
    up_to: int | None = Field(default=None, description="end of a range, where memory depends on the values in a batch")
    margin_bytes: int = Field(default=0, description="kept free for batches that nobody has seen")


class MemoryVariantDecision(Frozen):
    """The largest micro-batch with one memory optimization, and its speed. `why_not`: it cannot be used here."""

    max_micro_batch_size: int | None = None
    status: Literal["predicted", "verified"] = "predicted"
    tokens_per_second: float | None = None
    measured_at: int | None = Field(default=None, description="the micro-batch size that was timed")
    why_not: str = ""


class SpeedVariantDecision(Frozen):
    """How fast training is in another precision or compiled. `why_not`: it does not run here."""

    tokens_per_second: float | None = None
    lowest: float | None = Field(default=None, description="tokens per second of the slowest timed block")
    highest: float | None = None
    flops_per_token: float | None = None
    peak_flops: float | None = Field(default=None, description="per second, of a large matrix product so computed")
    launch_bound: bool = False
    why_not: str = ""


class ConcurrencyDecision(Frozen):
    """Training runs at a time and CPU threads of each; threads change the last bits of every number."""

    workers: int
    threads: int


class SizeBudget(Frozen):
    """What a run of one batch size trains on in the time that every run has."""

    tokens_per_second: float = Field(description="as it was measured, alone on the device")
    token_budget: int
    evaluation_interval: int


class BudgetDecision(Frozen):
    """What the sweep will spend, decided before its first training run."""

    token_budget: int = Field(description="of every run; at equal time, the most that any has")
    evaluation_interval: int = Field(description="tokens between evaluations; at equal time, those of that run")
    run_seconds: float | None = Field(default=None, description="of training that every run has; None: equal tokens")
    by_size: dict[int, SizeBudget] = Field(default_factory=dict, description="at equal time, by global batch size")
    adaptive: bool = Field(description="an adaptive search may make fewer runs than planned")
    runs_planned: int = Field(description="of a grid without extensions, or the most that an adaptive search may make")
    runs_at_most: int = Field(description="with all extensions that are allowed")
    workers: int = Field(description="runs at a time")
    seconds_planned: float | None = Field(description="for the planned runs; None: no speed is known")
    steps_of_largest: int = Field(description="optimizer steps of a run of the largest batch size")
    steps_to_judge: int = Field(description="fewest steps at which a batch size is judged")
    undertrained: tuple[int, ...] = Field(description="batch sizes with fewer steps than that")

    def tokens_of(self, global_batch_size: int) -> int:
        """Tokens of a run at this batch size."""
        size = self.by_size.get(global_batch_size)
        return self.token_budget if size is None else size.token_budget

    def interval_of(self, global_batch_size: int) -> int:
        """Tokens between evaluations of a run at this batch size."""
        size = self.by_size.get(global_batch_size)
        return self.evaluation_interval if size is None else size.evaluation_interval


class PriorLaw(Frozen):
    """A published law that the search starts from, and what it is evaluated at."""

    kind: Literal["law"] = "law"
    law: str
    parameters: int
    sequence_length: int


class PriorTrial(Frozen):
    """One training run of an earlier study."""

    global_batch_size: int
    learning_rate: float
    seed: int
    val_loss: float | None
    judged: bool = Field(description="False: undertrained")
    why: Outcome | None = Field(description="the outcome of a run without a loss")


class PriorStudy(Frozen):
    """An earlier study that the search starts from, as it was when this study began."""

    kind: Literal["study"] = "study"
    study: str
    token_budget: int
    trials: tuple[PriorTrial, ...]


class AcceptedEdit(Frozen):
    """An edit to the task's code that was declared harmless with --accept-edits."""

    path: str
    digest: str = Field(description="sha256 of the accepted content; empty: the file was deleted")


class StopReason(StrEnum):
    """Why an adaptive search tries no further cell."""

    LITTLE_TO_GAIN = "little_to_gain"
    RUNS_SPENT = "runs_spent"
    NO_CELL_LEFT = "no_cell_left"
    NO_FINITE_LOSS = "no_finite_loss"
    EQUAL_LOSSES = "equal_losses"


class GainBound(StrEnum):
    """What the least gain worth another run is."""

    REQUESTED = "requested"
    MEASURED_NOISE = "measured_noise"
    ASSUMED_NOISE = "assumed_noise"


class SearchStop(Frozen):
    """Where an adaptive search stopped; gains are in percent of the loss, None where no gain was computed."""

    reason: StopReason
    runs: int = Field(description="made until then")
    finite_runs: int = Field(description="of them, with a finite loss")
    expected_gain_percent: float | None = Field(default=None, description="by a run at the most promising cell")
    least_gain_percent: float | None = Field(default=None, description="least gain that is worth another run")
    bound: GainBound | None = None
    repeated_runs: int = Field(default=0, description="runs of the cells with several seeds, which measure the noise")
    enclosed: bool | None = Field(default=None, description="the best cell lies between others that were tried")


class FurtherSeeds(Frozen):
    """Seeds that are run after the search, at every one of these cells (batch size, learning rate, warm-up)."""

    cells: tuple[tuple[int, float, float], ...] = ()
    seeds: tuple[int, ...] = ()


class CriticalRound(Frozen):
    """What one round of `critical --run` trains beyond the sweep, decided before its first run."""

    sizes: tuple[int, ...] = Field(description="global batch sizes that the sweep did not have")
    longer: tuple[float, ...] = Field(description="token budgets above the study's, as multiples of it")


class Decisions(Frozen):
    """All decisions of a study; what is unset is not decided yet."""

    task_info: TaskInfo | None = None
    prior: PriorLaw | PriorStudy | None = Field(default=None, discriminator="kind")
    measuring_threads: int | None = Field(default=None, description="of a measurement that has the device to itself")
    capacity_limit_bytes: int | None = Field(default=None, description="free memory of a CPU, when it was first read")
    micro_batch: CapacityDecision | None = Field(default=None, description="searched up to what the sweep needs")
    capacity: CapacityDecision | None = Field(default=None, description="searched up to the largest size that fits")
    variants: dict[str, MemoryVariantDecision] = Field(default_factory=dict, description="by name, in order")
    speed_variants: dict[str, SpeedVariantDecision] = Field(default_factory=dict, description="by name, in order")
    concurrency: ConcurrencyDecision | None = None
    budget: BudgetDecision | None = None
    notes_digest: str | None = Field(default=None, description="sha256 of notes.md as batchlab made it")
    search_stopped: SearchStop | None = Field(default=None, description="why an adaptive search ended")
    further_seeds: dict[Literal["best", "tolerance"], FurtherSeeds] = Field(
        default_factory=dict, description="of the cell that is called best, and what shows that another costs no more"
    )
    complete: bool = False
    accepted_edits: tuple[AcceptedEdit, ...] = ()
    critical_rounds: dict[int, CriticalRound] = Field(default_factory=dict, description="by number, from 1")

    @property
    def memory(self) -> CapacityDecision | None:
        """The search for the largest micro-batch where it was made, else that for what the sweep needs."""
        return self.capacity or self.micro_batch

    def joined(self, later: Decisions) -> Decisions:
        """These decisions and those of `later` that are not made here: the first of each field or map key stays."""
        changes: dict[str, Any] = {}
        for name in later.model_fields_set:
            mine, theirs = getattr(self, name), getattr(later, name)
            if name not in self.model_fields_set:
                changes[name] = theirs
            elif isinstance(mine, dict):
                changes[name] = mine | {key: value for key, value in theirs.items() if key not in mine}
            elif isinstance(mine, tuple):
                changes[name] = (*mine, *(item for item in theirs if item not in mine))
        return self.model_copy(update=changes)

    def as_json(self) -> str:
        """The text of decisions.json: only what was decided."""
        return self.model_dump_json(indent=1, include=self.model_fields_set) + "\n"
