"""Where the numbers of a plan come from that nobody measured."""

from __future__ import annotations

from batchlab.analysis.extrapolation import Extrapolation
from batchlab.analysis.values import BatchRow
from batchlab.plan.training_plan import Provenance
from batchlab.scaling import Scaled
from batchlab.words.plan import COMPUTED, EXTRAPOLATED, describe_nearest_layout


def extrapolated_provenance(extrapolated: Extrapolation, near: BatchRow) -> dict[str, Provenance]:
    """An entry for every number that was extrapolated or rests on one that was; `near` is the nearest measured row."""
    size, measured = extrapolated.global_batch_size, near.global_batch_size
    entries = {
        "global_batch_size": _rule(extrapolated.batch_size_from)
        if extrapolated.batch_size_from
        else Provenance(status="given", source=EXTRAPOLATED["global_batch_size"]),
        "learning_rate": _rule(extrapolated.learning_rate),
        "token_budget": Provenance(status="given", source=EXTRAPOLATED["token_budget"]),
        "warmup_tokens": _rule(extrapolated.warmup_tokens),
        "micro_batch_size": Provenance(status="extrapolated", source=describe_nearest_layout(measured, size)),
        "grad_accum_steps": Provenance(status="computed", source=COMPUTED["grad_accum_steps"]),
        "expectation.val_loss": Provenance(status="given", source=EXTRAPOLATED["expectation.val_loss"]),
        "expectation.hours": Provenance(
            status="extrapolated",
            source=EXTRAPOLATED["expectation.hours"],
        ),
    }
    if extrapolated.beta2 is not None:
        entries["optimizer.beta2"] = _rule(extrapolated.beta2)
    if extrapolated.weight_decay is not None:
        entries["optimizer.weight_decay"] = _rule(extrapolated.weight_decay)
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
