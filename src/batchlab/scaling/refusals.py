"""Why no rule gives a number, with the numbers that say so. `words.refusals` has the sentences."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.core.batch import Unit
from batchlab.scaling.published import PublishedLaw
from batchlab.scaling.rules import Axis, LearningRateRule


@dataclass(frozen=True, slots=True)
class NotPositive:
    """A number that has to be finite and above zero."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Negative:
    """A number that has to be finite and at least zero."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class NoHalfLife:
    """A beta that does not lie between 0 and 1."""

    beta: float


@dataclass(frozen=True, slots=True)
class NothingTuned:
    """No batch size has a tuned learning rate."""


@dataclass(frozen=True, slots=True)
class BatchTooFar:
    """Further than `reach` times away from where the learning rate was tuned."""

    from_batch: float
    to_batch: float
    reach: float


@dataclass(frozen=True, slots=True)
class NeedsBestBatch:
    """A rule that bends at B_opt, which is unknown."""

    rule: LearningRateRule


@dataclass(frozen=True, slots=True)
class AboveBestBatch:
    """A rule that holds below B_opt only; `batch_size` is the larger end of the move."""

    rule: LearningRateRule
    best_batch_size: float
    batch_size: float


@dataclass(frozen=True, slots=True)
class NothingMeasured:
    """No optimum was measured, so none can be confirmed."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A study without a best batch size and learning rate."""


@dataclass(frozen=True, slots=True)
class AtEqualTime:
    """The study compares batch sizes at equal time; no rule moves such an optimum."""


@dataclass(frozen=True, slots=True)
class OptimumOnlyBounded:
    """The best batch size lies at an end of those tried, from `smallest` to `largest`."""

    best: int
    smallest: int
    largest: int


@dataclass(frozen=True, slots=True)
class OtherOptimizer:
    """An optimizer for which no exponent of budget or model size was published."""

    family: str


@dataclass(frozen=True, slots=True)
class MixedModels:
    """Optima of models with different numbers of parameters."""

    parameters: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MixedBudgets:
    """Optima of different token budgets, where those of one are needed."""


@dataclass(frozen=True, slots=True)
class NoModelSize:
    """No optimum comes with a number of parameters."""


@dataclass(frozen=True, slots=True)
class OptimumTooFar:
    """Further than `reach` times beyond the `nearest` budget or model size; of `laws`, where nothing was measured."""

    axis: Axis
    to: float
    nearest: float
    reach: float
    laws: bool = False


@dataclass(frozen=True, slots=True)
class LawCountsTokens:
    """A published law for a study that counts samples."""


@dataclass(frozen=True, slots=True)
class LawNeedsParameters:
    """A published law in N without the number of parameters."""

    law: PublishedLaw


@dataclass(frozen=True, slots=True)
class LawWithoutRate:
    """A published law that gives no learning rate."""

    law: PublishedLaw


@dataclass(frozen=True, slots=True)
class SdeOutOfRange:
    """1 − κ(1 − beta) would not lie above zero; `most` is the limit of κ."""

    beta: float
    batch_ratio: float
    most: float


@dataclass(frozen=True, slots=True)
class AboveCriticalBatch:
    """Weight decay above the critical batch size, where it no longer rises with the batch."""

    batch_size: float
    critical_batch_size: float


@dataclass(frozen=True, slots=True)
class WarmupTooShort:
    """A warm-up of `tokens`, under `fewest` steps."""

    tokens: float
    tokens_per_step: float
    fewest: int


@dataclass(frozen=True, slots=True)
class TooFewSteps:
    """A budget of under `fewest` steps of this batch size."""

    global_batch_size: int
    steps: int
    token_budget: int
    unit: Unit
    fewest: int


Refusal = (
    NotPositive
    | Negative
    | NoHalfLife
    | NothingTuned
    | BatchTooFar
    | NeedsBestBatch
    | AboveBestBatch
    | NothingMeasured
    | NoAnswer
    | AtEqualTime
    | OptimumOnlyBounded
    | OtherOptimizer
    | MixedModels
    | MixedBudgets
    | NoModelSize
    | OptimumTooFar
    | LawCountsTokens
    | LawNeedsParameters
    | LawWithoutRate
    | SdeOutOfRange
    | AboveCriticalBatch
    | WarmupTooShort
    | TooFewSteps
)
