"""From what was measured to another batch size, token budget or model size, as pure functions.

Every answer is a `Scaled` value with its rule, source, valid range and interval, or a `Refused` with the sentence a
person reads. Batch sizes may be in samples or tokens, but in one unit throughout a call.
"""

from batchlab.scaling.answer import Refused, Scaled, Scaling
from batchlab.scaling.learning_rate import (
    LearningRateRule,
    learning_rate_at,
    learning_rate_between,
    learning_rate_ratio,
)
from batchlab.scaling.optimum import (
    Confirmation,
    Moved,
    Optimum,
    confirm_batch,
    confirm_budget,
    optimum_at_budget,
    optimum_at_size,
)
from batchlab.scaling.power_law import Exponent, PowerLaw, fit_power_law
from batchlab.scaling.published import LAWS, PublishedLaw
from batchlab.scaling.time_constants import (
    beta2_at,
    beta2_by_half_life,
    beta_by_sde,
    describe_across_batch,
    warmup_by_tokens,
    weight_decay_at,
    weight_decay_by_timescale,
)

__all__ = [
    "LAWS",
    "Confirmation",
    "Exponent",
    "LearningRateRule",
    "Moved",
    "Optimum",
    "PowerLaw",
    "PublishedLaw",
    "Refused",
    "Scaled",
    "Scaling",
    "beta2_at",
    "beta2_by_half_life",
    "beta_by_sde",
    "confirm_batch",
    "confirm_budget",
    "describe_across_batch",
    "fit_power_law",
    "learning_rate_at",
    "learning_rate_between",
    "learning_rate_ratio",
    "optimum_at_budget",
    "optimum_at_size",
    "warmup_by_tokens",
    "weight_decay_at",
    "weight_decay_by_timescale",
]
