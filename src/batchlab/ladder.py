"""The ladder: what each way of saving memory buys at this model, each by a capacity search and a timing of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchlab.analysis.capacity import Rung
from batchlab.batch import lay_out
from batchlab.maximum import scratch_session
from batchlab.opening import EngineFactory
from batchlab.stages.capacity import Aim, capacity_stage
from batchlab.stages.failure import StageFailed
from batchlab.stages.throughput import throughput_stage
from batchlab.what import merge

RUNGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one pass per step": {"batch": {"micro_batching": "off"}},  # no gradients kept from one micro-batch to the next
    "bf16": {"device": {"precision": "bf16"}},
    "checkpointing": {"device": {"savings": ["checkpointing"]}},
    "chunked loss": {"device": {"savings": ["chunked_loss"]}},
    "fused optimizer": {"device": {"savings": ["fused_optimizer"]}},
}


def climb(
    values: dict[str, Any], make_engine: EngineFactory, aim: Aim, rungs: Mapping[str, dict[str, Any]] = RUNGS
) -> tuple[Rung, ...]:
    """The largest micro-batch with each saving alone (`rungs`: name → settings), and its speed at one size for all.

    The size is the largest of the sweep, or the largest that fits where that is less. With `aim.card_bytes` sizes are
    predicted for a card that is not here and nothing is timed.
    """
    return tuple(_rung(name, merge(values, changes), make_engine, aim) for name, changes in rungs.items())


def _rung(name: str, values: dict[str, Any], make_engine: EngineFactory, aim: Aim) -> Rung:
    with scratch_session(values, make_engine) as session:
        try:
            found = capacity_stage(session, aim, separable=True)
        except StageFailed as failure:
            return Rung(name, why_not=str(failure))
        largest = found.max_micro_batch_size
        if largest is None or aim.card_bytes is not None:
            return Rung(name, largest)
        experiment = session.opened.experiment
        timed = min(largest, experiment.batch.global_batch_sizes[-1])
        layout = lay_out(timed, timed, sequence_length=experiment.sequence_length)
        speed = throughput_stage(session, [layout]).get(timed)
        return Rung(name, largest, "verified", speed.tokens_per_second if speed else None, timed if speed else None)
