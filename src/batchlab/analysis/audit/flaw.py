"""What an audit can find, one frozen value per kind, with the numbers that show it. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Literal

from batchlab.analysis.audit.table import Quantity


class Severity(IntEnum):
    """How much a flaw changes what can be concluded; the larger, the more."""

    NOTE = 1  # what a reader should know
    WARNING = 2  # the conclusion may change
    ERROR = 3  # the numbers contradict each other, or the conclusion does not follow


@dataclass(frozen=True, slots=True)
class Flaw:
    """`lines`: of the file, that show it."""

    severity: ClassVar[Severity] = Severity.WARNING
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokensDisagree(Flaw):
    """steps × tokens per step is not the tokens that are stated. `ratio`: stated ÷ product, lowest and highest."""

    severity: ClassVar[Severity] = Severity.ERROR
    steps: float
    tokens_per_step: float
    tokens: float
    ratio: tuple[float, float]


@dataclass(frozen=True, slots=True)
class StepsInconsistent(Flaw):
    """Steps × batch size differs between rows that are said to have the same budget. Of two rows: (batch, steps)."""

    severity: ClassVar[Severity] = Severity.ERROR
    fewest: tuple[float, float]
    most: tuple[float, float]
    factor: float


@dataclass(frozen=True, slots=True)
class EqualSteps(Flaw):
    """All batch sizes trained for the same number of steps, so the largest saw `factor` × the samples."""

    severity: ClassVar[Severity] = Severity.ERROR
    steps: float
    smallest: float
    largest: float
    factor: float


@dataclass(frozen=True, slots=True)
class UnequalTokens(Flaw):
    """Batch sizes that are compared saw different numbers of tokens (or of samples)."""

    severity: ClassVar[Severity] = Severity.ERROR
    fewest: tuple[float, float]  # (batch, tokens)
    most: tuple[float, float]
    factor: float


@dataclass(frozen=True, slots=True)
class BatchDisagrees(Flaw):
    """micro-batch × accumulation × devices is not the global batch size."""

    severity: ClassVar[Severity] = Severity.ERROR
    product: float
    given: float


@dataclass(frozen=True, slots=True)
class BeyondMemory(Flaw):
    """More memory was in use than the device has: part of it was host memory, or one of the numbers is wrong."""

    severity: ClassVar[Severity] = Severity.ERROR
    peak_bytes: float
    memory_limit: float


@dataclass(frozen=True, slots=True)
class OptimizerStateWrong(Flaw):
    """The optimizer's state is not what its rule says: `states` values of 4 bytes per parameter."""

    severity: ClassVar[Severity] = Severity.ERROR
    optimizer: str
    states: int
    expected: float
    given: float


@dataclass(frozen=True, slots=True)
class Contradiction(Flaw):
    """Rows of the same configuration and seed have different losses."""

    severity: ClassVar[Severity] = Severity.ERROR
    batch: float
    losses: tuple[float, float]


@dataclass(frozen=True, slots=True)
class LearningRateNotTuned(Flaw):
    """`sizes` batch sizes were each tried at one learning rate. `shared`: the same for all of them."""

    severity: ClassVar[Severity] = Severity.ERROR
    sizes: int
    learning_rate: float | None


@dataclass(frozen=True, slots=True)
class BestAtEdge(Flaw):
    """The lowest loss is at the smallest or largest batch size or learning rate that was tried."""

    axis: Literal["batch", "learning_rate"]
    side: Literal["low", "high"]
    value: float
    batch: float | None = None  # of a learning rate


@dataclass(frozen=True, slots=True)
class WarmupSharesDiffer(Flaw):
    """Warm-up takes a different share of the run at different batch sizes: (batch, share)."""

    least: tuple[float, float]
    most: tuple[float, float]


@dataclass(frozen=True, slots=True)
class TooFewSteps(Flaw):
    """Runs of so few updates are not judged by their loss."""

    steps: float
    needed: int


@dataclass(frozen=True, slots=True)
class OneSeed(Flaw):
    """No configuration was repeated, so noise is unknown. `gap`: of the two best sizes, as a share of the loss."""

    severity: ClassVar[Severity] = Severity.NOTE
    rows: int
    gap: float | None


@dataclass(frozen=True, slots=True)
class WithinNoise(Flaw):
    """The two best batch sizes differ by no more than seeds do: 95 % interval of their difference, in nats."""

    best: float
    other: float
    difference: float
    half_width: float
    seeds: int


@dataclass(frozen=True, slots=True)
class TrainingLossJudged(Flaw):
    """Sizes can only be compared by a training loss; by its name maybe that of a single batch (`LAST_LOSS`)."""

    quantity: Quantity


@dataclass(frozen=True, slots=True)
class TrainBelowValidation(Flaw):
    """Validation loss is below training loss: the two are not measured alike, so their gap is no generalisation."""

    severity: ClassVar[Severity] = Severity.NOTE
    batch: float
    gap: float


@dataclass(frozen=True, slots=True)
class LargerIsSlower(Flaw):
    """A larger batch size is slower than a smaller one: (batch, time per token or sample, relative to the smaller)."""

    smaller: float
    larger: float
    factor: float


@dataclass(frozen=True, slots=True)
class GapBelowMemoryLimit(Flaw):
    """The limit of memory lies anywhere between the largest size that ran and the smallest that did not."""

    severity: ClassVar[Severity] = Severity.NOTE
    fits: float
    fails: float


@dataclass(frozen=True, slots=True)
class NoOptimizerInMemory(Flaw):
    """Memory was measured without an optimizer, whose state a real step also holds."""

    parameters: float | None


@dataclass(frozen=True, slots=True)
class NoLoss(Flaw):
    """Runs that are said to have completed have no loss."""

    severity: ClassVar[Severity] = Severity.NOTE
