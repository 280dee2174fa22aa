"""Speed variants: what TF32, bf16, fp16 or torch.compile alone would gain here, timed at one batch size."""

from __future__ import annotations

from batchlab.analysis.sweep.speed_variants import SpeedVariant, speed_variants
from batchlab.analysis.values import LAUNCH_BOUND
from batchlab.core.batch import BatchLayout
from batchlab.core.errors import InputError
from batchlab.core.record import ThroughputResult
from batchlab.core.spec import ThroughputSpec
from batchlab.storage.decisions import Decisions, SpeedVariantDecision
from batchlab.study.session import Session, run_alone
from batchlab.study.stages.variants import changed_session

AS_IT_IS = "as it is"

SPEED_VARIANTS: dict[str, dict[str, str]] = {
    "tf32": {"precision": "tf32"},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "compile": {"compile": "default"},
    "bf16, compile": {"precision": "bf16", "compile": "default"},
    "reduce-overhead": {"compile": "reduce-overhead"},
    "bf16, reduce-overhead": {"precision": "bf16", "compile": "reduce-overhead"},
}
"""Name → the device's settings that differ from the study's own."""

_ON = {
    "cuda": tuple(SPEED_VARIANTS),
    "cpu": ("bf16", "compile", "bf16, compile"),  # no TF32, no graphs of kernels, and fp16 without kernels of its own
    "mps": ("bf16",),
}


def speed_variants_stage(session: Session, layout: BatchLayout) -> tuple[SpeedVariant, ...]:
    """Time every variant that this device has, after the study as it is. Each is a decision on disk, so an interrupted
    stage continues with the next one. Empty on a device that has none."""
    device, store = session.device, session.study.store
    own = {"precision": device.precision, "compile": device.compile}
    names = _ON.get(device.name.partition(":")[0], ())
    wanted = {name: SPEED_VARIANTS[name] for name in names if {**own, **SPEED_VARIANTS[name]} != own}
    if not wanted:
        return ()
    for name, changes in {AS_IT_IS: {}, **wanted}.items():
        if name in store.decisions().speed_variants:
            continue
        session.view.stage(f"variants: {name}")
        store.decide(Decisions(speed_variants={name: _measured(session, changes, layout)}))
    decided = store.decisions().speed_variants
    return speed_variants(decided[AS_IT_IS], {name: decided[name] for name in wanted}, wanted)


def _measured(session: Session, changes: dict[str, str], layout: BatchLayout) -> SpeedVariantDecision:
    try:
        with changed_session(session, {"device": changes}) as other:
            spec = ThroughputSpec(
                workload=other.study.workload,
                layout=layout,
                optimizer=other.optimizer(layout.global_batch_size),
                device=other.device.model_copy(update={"threads": session.device.threads}),
            )
            [record] = run_alone(other, [spec])
    except InputError as error:
        return SpeedVariantDecision(why_not=str(error))
    result = record.result
    if not isinstance(result, ThroughputResult):
        return SpeedVariantDecision(why_not=record.reason)
    return SpeedVariantDecision(
        tokens_per_second=result.tokens_per_second,
        lowest=min(result.tokens_per_second_blocks),
        highest=max(result.tokens_per_second_blocks),
        flops_per_token=result.flops_per_token,
        peak_flops=result.peak_flops,
        launch_bound=(result.issuing_share or 0.0) > LAUNCH_BOUND,
    )
