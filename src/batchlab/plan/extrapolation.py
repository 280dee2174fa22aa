"""The provenance of a plan's extrapolated numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.extrapolation import Caveat, Extrapolation
from batchlab.analysis.values import BatchRow
from batchlab.plan.training_plan import Provenance
from batchlab.scaling import Scaled
from batchlab.words.plan import COMPUTED, EXTRAPOLATED, describe_nearest_layout
from batchlab.words.scaling import describe_caveat, describe_range, describe_rule, describe_source


def extrapolated_provenance(extrapolated: Extrapolation, near: BatchRow) -> dict[str, Provenance]:
    """An entry for every number that was extrapolated or rests on one that was; `near` is the nearest measured row."""
    size, measured = extrapolated.global_batch_size, near.global_batch_size
    entries = {
        "global_batch_size": _rule(extrapolated.batch_size_from, extrapolated.caveats)
        if extrapolated.batch_size_from
        else Provenance(status="given", source=EXTRAPOLATED["global_batch_size"]),
        "learning_rate": _rule(extrapolated.learning_rate, extrapolated.caveats),
        "token_budget": Provenance(status="given", source=EXTRAPOLATED["token_budget"]),
        "warmup_tokens": _rule(extrapolated.warmup_tokens),
        "micro_batch_size": Provenance(status="extrapolated", source=describe_nearest_layout(measured, size)),
        "grad_accum_steps": Provenance(status="computed", source=COMPUTED["grad_accum_steps"]),
        "performance_targets.val_loss": Provenance(status="given", source=EXTRAPOLATED["performance_targets.val_loss"]),
        "performance_targets.hours": Provenance(
            status="extrapolated",
            source=EXTRAPOLATED["performance_targets.hours"],
        ),
    }
    if extrapolated.beta2 is not None:
        entries["optimizer.beta2"] = _rule(extrapolated.beta2)
    if extrapolated.weight_decay is not None:
        entries["optimizer.weight_decay"] = _rule(extrapolated.weight_decay)
    return entries


def _rule(scaled: Scaled, caveats: Sequence[Caveat] = ()) -> Provenance:
    """An end that is open is left out."""
    return Provenance(
        status="extrapolated",
        source=describe_source(scaled.rule),
        rule=describe_rule(scaled.rule),
        range="; ".join([describe_range(scaled.rule), *map(describe_caveat, caveats)]),
        low=scaled.low or None,
        high=None if scaled.high == math.inf else scaled.high,
    )
