"""By which rule a number was extrapolated, with the numbers that went in and the range the rule was shown to hold in.

`words.scaling` has the sentences: what was done, who showed it, and where it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from batchlab.core.experiment import AcrossBatch
from batchlab.scaling.power_law import PowerLaw
from batchlab.scaling.published import Exponent, PublishedLaw


class LearningRateRule(StrEnum):
    """How a learning rate follows the batch size."""

    SATURATING = "saturating"
    UNCAPPED = "uncapped"
    SQUARE_ROOT = "sqrt"
    LINEAR = "linear"
    NONE = "keep"


class Quantity(StrEnum):
    """Which half of an optimum."""

    BATCH_SIZE = "batch_size"
    LEARNING_RATE = "learning_rate"


class Axis(StrEnum):
    """Along what an optimum is extrapolated."""

    BUDGET = "budget"
    MODEL_SIZE = "model_size"


@dataclass(frozen=True, slots=True)
class LowestLoss:
    """Not extrapolated: the best of the batch sizes from `smallest` to `largest` that the study itself tried."""

    quantity: Quantity
    smallest: float
    largest: float


@dataclass(frozen=True, slots=True)
class SameBatch:
    """Not extrapolated: the learning rate was tuned at this batch size."""


@dataclass(frozen=True, slots=True)
class Interpolated:
    """Between the tuned learning rates of two batch sizes, log against log."""

    below: float
    above: float


@dataclass(frozen=True, slots=True)
class BatchRule:
    """A learning rate at another batch size; shown to hold from `smallest` to `largest`."""

    rule: LearningRateRule
    from_batch: float
    to_batch: float
    best_batch_size: float | None
    across_batch: AcrossBatch
    smallest: float
    largest: float


@dataclass(frozen=True, slots=True)
class PowerLawRule:
    """An optimum moved along `axis` by `law`, from what was measured at `measured_at`; valid from `low` to `high`."""

    quantity: Quantity
    axis: Axis
    law: PowerLaw
    published: Exponent
    measured_at: tuple[float, ...]  # distinct budgets or model sizes, ascending
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LawRule:
    """A published law alone, where nothing was measured; compared with runs from `low` to `high` tokens."""

    quantity: Quantity
    law: PublishedLaw
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class HalfLifeRule:
    """beta2 with its half-life in tokens held, as far as that keeps it between `low` and `high`."""

    beta2: float
    batch_ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SdeRule:
    """A beta as 1 − κ(1 − beta), κ = `batch_ratio`; valid below κ = `most`."""

    batch_ratio: float
    most: float


@dataclass(frozen=True, slots=True)
class TimescaleRule:
    """Weight decay with AdamW's timescale in tokens held: × batch ÷ learning rate ÷ budget^`budget_exponent`."""

    batch_ratio: float
    learning_rate_ratio: float
    budget_ratio: float
    budget_exponent: float


@dataclass(frozen=True, slots=True)
class WarmupRule:
    """The same warm-up tokens at every batch size, the same share of every budget; at least `fewest_steps` steps."""

    fewest_steps: int


@dataclass(frozen=True, slots=True)
class Chained:
    """One rule after another."""

    first: Rule
    then: Rule


Rule = (
    LowestLoss
    | SameBatch
    | Interpolated
    | BatchRule
    | PowerLawRule
    | LawRule
    | HalfLifeRule
    | SdeRule
    | TimescaleRule
    | WarmupRule
    | Chained
)
