"""Where the numbers of a plan come from that nobody measured."""

from __future__ import annotations

from batchlab.analysis.sweep.extrapolation import Carried
from batchlab.analysis.values import BatchRow
from batchlab.plan.training_plan import Provenance
from batchlab.scaling import Scaled


def carried_provenance(carried: Carried, near: BatchRow) -> dict[str, Provenance]:
    """An entry for every number that was carried over or rests on one that was; `near` is the nearest measured row."""
    size, measured = carried.global_batch_size, near.global_batch_size
    layout = f"the layout of batch {measured:,}, the nearest measured, for batch {size:,}"
    entries = {
        "global_batch_size": _rule(carried.batch_size_from)
        if carried.batch_size_from
        else Provenance(status="given", source="asked for; not measured"),
        "learning_rate": _rule(carried.learning_rate),
        "token_budget": Provenance(status="given", source="asked for, in whole steps"),
        "warmup_tokens": _rule(carried.warmup_tokens),
        "micro_batch_size": Provenance(status="extrapolated", source=layout),
        "grad_accum_steps": Provenance(status="computed", source="share ÷ micro-batch"),
        "expectation.validation_loss": Provenance(
            status="given", source="not measured here, and no rule is trusted to"
        ),
        "expectation.hours": Provenance(
            status="extrapolated",
            source="token budget ÷ (tokens/s of the nearest measured size × devices); empty for another model",
        ),
    }
    if carried.beta2 is not None:
        entries["optimizer.beta2"] = _rule(carried.beta2)
    if carried.weight_decay is not None:
        entries["optimizer.weight_decay"] = _rule(carried.weight_decay)
    return entries


def _rule(scaled: Scaled) -> Provenance:
    return Provenance(
        status="extrapolated",
        source=scaled.source,
        rule=scaled.rule,
        range=scaled.range,
        low=scaled.low,
        high=scaled.high,
    )
