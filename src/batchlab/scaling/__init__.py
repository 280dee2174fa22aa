"""From what was measured to another batch size, token budget or model size, as pure functions.

Every answer is a `Scaled` value with its rule and interval, or a `Refused` with its reason; `words.scaling` and
`words.refusals` have the sentences. Batch sizes may be in samples or tokens, but in one unit throughout a call.
"""

from batchlab.scaling.answer import Refused, Scaled, Scaling
from batchlab.scaling.confirmation import (
    CellRuns,
    Confirmation,
    PairOfRuns,
    SmallStudy,
    confirm_batch,
    confirm_budget,
)
from batchlab.scaling.learning_rate import learning_rate_at, learning_rate_between, learning_rate_ratio
from batchlab.scaling.optimum import Moved, Optimum, optimum_at_budget, optimum_at_size
from batchlab.scaling.power_law import PowerLaw, fit_power_law
from batchlab.scaling.published import LAWS, Exponent, PublishedLaw
from batchlab.scaling.refusals import Refusal
from batchlab.scaling.rules import LearningRateRule, Rule
from batchlab.scaling.time_constants import (
    beta2_at,
    beta2_by_half_life,
    beta_by_sde,
    decay_timescale,
    epsilon_at,
    warmup_by_tokens,
    weight_decay_at,
    weight_decay_by_timescale,
    weight_decay_of,
)

__all__ = [
    "LAWS",
    "CellRuns",
    "Confirmation",
    "Exponent",
    "LearningRateRule",
    "Moved",
    "Optimum",
    "PairOfRuns",
    "PowerLaw",
    "PublishedLaw",
    "Refusal",
    "Refused",
    "Rule",
    "Scaled",
    "Scaling",
    "SmallStudy",
    "beta2_at",
    "beta2_by_half_life",
    "beta_by_sde",
    "confirm_batch",
    "confirm_budget",
    "decay_timescale",
    "epsilon_at",
    "fit_power_law",
    "learning_rate_at",
    "learning_rate_between",
    "learning_rate_ratio",
    "optimum_at_budget",
    "optimum_at_size",
    "warmup_by_tokens",
    "weight_decay_at",
    "weight_decay_by_timescale",
    "weight_decay_of",
]
