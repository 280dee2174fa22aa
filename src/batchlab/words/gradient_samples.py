"""Why the gradients of a run's micro-batches are not measured, and what would make them measurable."""

from __future__ import annotations

from batchlab.core.record import NoGradientSamples

_REASONS = {
    NoGradientSamples.UNSUPPORTED: "this framework cannot measure the gradients of micro-batches",
    NoGradientSamples.ONE_SAMPLE: "one sample per step cannot be split, so noise and gradient cannot be separated",
    NoGradientSamples.ONE_MICRO_BATCH: "a step is one micro-batch that may not be split",
    NoGradientSamples.NO_NORM_LAYERS: "the model has no norm layers with trainable parameters",
    NoGradientSamples.SAMPLES_NOT_SEPARATED: "no norm layer gives gradients of single samples",
    NoGradientSamples.NO_GRADIENT: "a micro-batch gave no gradient at all",
    NoGradientSamples.PARTIAL_GRADIENTS: (
        "a parameter's gradient arrives in pieces within one backward pass, as with reentrant activation checkpointing "
        "of shared weights; use checkpoint(…, use_reentrant=False)"
    ),
    NoGradientSamples.SEVERAL_DEVICES: "it is measured in runs on one device only",
    NoGradientSamples.SPARSE: "a parameter has sparse gradients; build its embedding with sparse=False",
    NoGradientSamples.SHARDED: (
        "the model is sharded (FSDP), so the gradients of single processes are never there; observe it for some steps "
        "in DistributedDataParallel, or in one process at a smaller size"
    ),
}


def why_no_gradient_samples(*reasons: NoGradientSamples) -> str:
    """The reasons as one clause."""
    return ", and ".join(_REASONS[reason] for reason in reasons)
