"""Which steps of a run log the norms of their micro-batches' gradients, and what a logged row holds.

The norms are those of the gradients that training computes anyway. A step of one micro-batch shows no noise, so at the
sampled steps it is split in two, where batches may be split; the sum of the two gradients is the same except for
rounding. Steps of several micro-batches give the same bits whether sampled or not. Norm layers alone give gradients of
single samples, so they need no split; every fourth sample then measures all parameters, to calibrate them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.core.batch import BatchLayout
from batchlab.core.protocols import AddedNorms, Batch, MeasuresGradients, Trainable
from batchlab.core.record import GradientSample, MetricRow, NoGradientSamples
from batchlab.core.spec import GradientSampling

CALIBRATED = 4
"""With norm layers alone, one in this many sampled steps measures all parameters."""

SPARSEST = 25
"""Sampled steps are at least this far apart; twice that where a single micro-batch of under `SMALL` samples is split,
because its two halves take nearly a step each. So the cost stays below 3 % (benchmarks/noise_cost/results.md)."""
SMALL = 8


def steps_between(steps: int, points: int, layout: BatchLayout) -> int:
    """Steps from one sampled step to the next for about `points` of them in a run of `steps`."""
    split = len(layout.micro_batch_sizes()) == 1 and layout.global_batch_size < SMALL
    return max(2 * SPARSEST if split else SPARSEST, math.ceil(steps / points))


@dataclass(frozen=True, slots=True)
class _Pending:
    """A sampled step whose norms may still be on the device; `shares` are its micro-batches' shares of the step."""

    step: int
    parameters: Literal["all", "norm_layers"]
    shares: tuple[float, ...]
    norms: AddedNorms


class GradientSampler:
    """Samples the gradients of one run. `why_not` says why it cannot; empty while it can."""

    def __init__(self, trainable: Trainable, sampling: GradientSampling | None, layout: BatchLayout) -> None:
        self._trainable = trainable if isinstance(trainable, MeasuresGradients) else None
        self._sampling = sampling
        self._layout = layout
        self._pending: list[_Pending] = []
        self._calibrates = True
        self.why_not: tuple[NoGradientSamples, ...] = () if self._sampling is None else self._cannot()

    def _cannot(self) -> tuple[NoGradientSamples, ...]:
        if self._trainable is None:
            return (NoGradientSamples.UNSUPPORTED,)
        if len(self._layout.micro_batch_sizes()) > 1:
            return ()
        if self._layout.global_batch_size == 1:
            return (NoGradientSamples.ONE_SAMPLE,)
        if self._sampling is not None and self._sampling.parameters == "all" and not self._sampling.split_lone:
            return (NoGradientSamples.ONE_MICRO_BATCH,)
        return ()

    def _parameters(self, step: int) -> Literal["all", "norm_layers"]:
        """What a sampled step measures; norm layers are calibrated where all parameters can be measured."""
        sampling = self._sampling
        assert sampling is not None
        can = len(self._layout.micro_batch_sizes()) > 1 or sampling.split_lone
        calibrating = can and self._calibrates and (step + 1) % (CALIBRATED * sampling.every) == 0
        return "all" if sampling.parameters == "all" or calibrating else "norm_layers"

    def due(self, step: int) -> bool:
        """Whether step number `step`, from 0, is sampled: the last of each `every` steps."""
        sampling = self._sampling
        return sampling is not None and not self.why_not and (step + 1) % sampling.every == 0

    def sizes(self, step: int) -> tuple[int, ...]:
        """Micro-batch sizes of a sampled step: as in every step, or a single one split in two for all parameters."""
        sizes = self._layout.micro_batch_sizes()
        whole = len(sizes) > 1 or self._parameters(step) == "norm_layers"
        return sizes if whole else (math.ceil(sizes[0] / 2), sizes[0] // 2)

    def accumulate(self, batches: Sequence[Batch], counts: Sequence[float], step: int) -> None:
        """Add the gradients of the step's micro-batches, and keep their norms where they are known."""
        assert self._trainable is not None
        assert self._sampling is not None
        weight = 1.0 / sum(counts)
        if min(counts) <= 0:  # a micro-batch without a target has no mean gradient
            for batch in batches:
                self._trainable.accumulate(batch, weight)
            return
        parameters = self._parameters(step)
        norms = self._trainable.accumulate_measured(batches, weight, parameters)
        if isinstance(norms, AddedNorms):
            self._pending.append(_Pending(step, parameters, tuple(count * weight for count in counts), norms))
        elif parameters == self._sampling.parameters:
            self.why_not = (NoGradientSamples.ONE_MICRO_BATCH, norms) if len(batches) == 1 else (norms,)
        else:
            self._calibrates = False

    def rows(self) -> list[MetricRow]:
        """The sampled steps since the last call, as rows, without those whose gradients overflowed; waits for the
        device."""
        pending, self._pending = self._pending, []
        tokens = self._layout.tokens_per_step
        sampled = [(p.step + 1, gradient_sample(p.norms, p.shares, self._layout, p.parameters)) for p in pending]
        return [
            MetricRow(step=step, tokens=step * tokens, gradients=sample)
            for step, sample in sampled
            if math.isfinite(sample.mean_squared_norm)
        ]


def gradient_sample(
    norms: AddedNorms,
    shares: Sequence[float],
    layout: BatchLayout,
    parameters: Literal["all", "norm_layers"] = "all",
) -> GradientSample:
    """Norms of mean gradients from norms of what was added: s times the mean gradient, s a micro-batch's share."""
    batch = layout.global_batch_size

    def means(added: Sequence[object]) -> tuple[float, ...]:
        return tuple(float(value) / share**2 for value, share in zip(added, shares, strict=True))  # type: ignore[arg-type]

    inner = norms.norm_layers
    signs = norms.signs
    last = shares[-1]
    samples = norms.norm_layer_samples
    return GradientSample(
        parameters=parameters,
        micro_batch_sizes=tuple(share * batch for share in shares),
        squared_norms=means(norms.squared),
        mean_squared_norm=float(norms.squared_sum),
        norm_layer_squared_norms=means(inner[0]) if inner else None,
        norm_layer_mean_squared_norm=float(inner[1]) if inner else None,
        # two groups of b(1 − s) and b·s samples: their difference has variance σ²/(b·s(1 − s))
        spread=math.sqrt(batch * last * (1 - last)) * float(signs[0]) if signs else None,
        agreement=float(signs[1]) if signs else None,
        absolute_mean=float(signs[2]) if signs else None,
        norm_layer_samples=(float(samples[0]), float(samples[1])) if samples else None,
    )
