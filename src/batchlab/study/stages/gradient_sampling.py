"""How the runs of a study sample gradients, and how a probe does before them."""

from __future__ import annotations

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import Experiment
from batchlab.core.spec import GradientSampling
from batchlab.runs.gradient_samples import steps_between


def gradient_sampling(
    experiment: Experiment, layout: BatchLayout, steps: int, *, sample_independent: bool
) -> GradientSampling | None:
    """How a run of `steps` samples its gradients; None where it does not.

    A compiled model is not split, because every new shape is compiled again. Where a lone micro-batch may not be split
    in two, gradients of single samples come from the norm layers, unless samples influence each other or the model is
    compiled.
    """
    if not experiment.noise.points:
        return None
    lone = len(layout.micro_batch_sizes()) == 1
    plain = sample_independent and experiment.device.compile == "off"
    split = plain and experiment.batch.micro_batching != "off"
    asked = sample_independent and experiment.noise.parameters == "norm_layers"
    return GradientSampling(
        every=steps_between(steps, experiment.noise.points, layout),
        parameters="norm_layers" if asked or (plain and lone and not split) else "all",
        split_lone=split,
    )


def probed_sampling(
    experiment: Experiment, layout: BatchLayout, steps: int, *, sample_independent: bool
) -> GradientSampling | None:
    """The same for a probe of `steps`: the step before the last, which is not timed, is sampled.

    Norm layers are calibrated with all parameters wherever that is possible (runs/gradient_samples.py), which needs the
    most memory.
    """
    sampling = gradient_sampling(experiment, layout, steps, sample_independent=sample_independent)
    if sampling is None:
        return None
    several = len(layout.micro_batch_sizes()) > 1 or sampling.split_lone
    return sampling.model_copy(
        update={"every": max(1, steps - 1), "parameters": "all" if several else sampling.parameters}
    )
