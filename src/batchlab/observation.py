"""The noise scale, speed and memory of a person's own training loop.

    obs = batchlab.observe(model)
    for batch in loader:
        for x, y in micro_batches(batch):
            with obs.micro_batch(tokens=y.numel()):
                (loss(model, x, y) / accumulation).backward()
        optimizer.step()
        optimizer.zero_grad()
        obs.step()
    print(obs.summary())

Gradients are looked at while they are added, by the hooks that batchlab's own loop uses; nothing is copied, and
clipping or the optimizer may change `.grad` afterwards as they like. Gradients must be cleared between steps. In data
parallel training each process sees its own share only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any, Literal

from batchlab.analysis.critical.noise_scale import GradientNorms, NoiseScale, noise_scale, noise_scale_series
from batchlab.core.errors import InputError
from batchlab.core.format import format_bytes
from batchlab.words.gradient_samples import why_no_gradient_samples

EVERY = 25
"""Sampled steps are this far apart by default; what one costs is in benchmarks/noise_cost/results.md."""


def observe(
    model: Any,
    *,
    every: int = EVERY,
    scaler: Any = None,
    parameters: Literal["all", "norm_layers"] = "all",
) -> Observation:
    """Watch the gradients of a torch model in a loop of one's own.

    every: steps from one sampled step to the next. scaler: the torch.amp.GradScaler in use; its factor is divided out,
    and steps that overflowed are left out and counted. parameters: norm_layers is cheaper, and another noise scale.
    """
    if every < 1:
        raise InputError(f"observe(every={every}): give a whole number of at least 1.")
    observed = import_module("batchlab.torch_.observed")
    try:
        return Observation(observed.ObservedModel(model, parameters, scaler), every)
    except TypeError as error:
        raise InputError(str(error)) from None


class Observation:
    """What was seen so far. Made by `observe`."""

    def __init__(self, watched: Any, every: int) -> None:
        self._watched = watched
        self._every = every
        self._tokens: list[float] = []
        self._shares: list[float | None] = []
        self._counts: list[int | None] = []
        self._samples: list[GradientNorms] = []
        self._norm_layer_samples: list[GradientNorms] = []
        self._began: float | None = None
        self.steps = 0
        self.tokens = 0.0
        self.lone_steps = 0  # sampled steps of a single micro-batch, which show no noise
        self.stale_steps = 0  # sampled steps that began with gradients left from before

    @property
    def _sampled(self) -> bool:
        return (self.steps + 1) % self._every == 0 and not self._watched.why_not

    @contextmanager
    def micro_batch(self, tokens: float, share: float | None = None, samples: int | None = None) -> Iterator[None]:
        """Around the backward pass of one micro-batch of `tokens` targets (or samples: the noise scale comes in these).

        share: what the mean loss of the micro-batch was multiplied by before backward, 1/accumulation if left out;
        give tokens/total where the loss is divided by the whole step's tokens. samples: how many, with equally many
        targets each; with it, and the forward pass inside too, norm layers tell them apart, so that a single
        micro-batch is enough for `norm_layer_noise_scale`.
        """
        if samples is not None and samples < 1:
            raise InputError(f"micro_batch(samples={samples}): give the number of samples in it, at least 1.")
        if not (tokens > 0 and math.isfinite(tokens)):
            raise InputError(f"micro_batch(tokens={tokens}): give the number of targets in it, at least 1.")
        if self._began is None:
            self._began = self._watched.now()
        with self._watched.backward_pass(samples) if self._sampled else nullcontext():
            yield
        self._tokens.append(float(tokens))
        self._counts.append(samples)
        self._shares.append(share)

    def step(self) -> None:
        """After the last micro-batch of an optimizer step, whether the optimizer took it or skipped it."""
        if not self._tokens:
            raise InputError("step() came without a micro_batch() before it.")
        self.tokens += sum(self._tokens)
        if self._sampled:
            self._sample()
        self._tokens, self._shares, self._counts = [], [], []
        self.steps += 1

    def _sample(self) -> None:
        numbers, of_samples = self._watched.numbers(), self._watched.sample_numbers()
        count = len(self._tokens)
        shares = [1 / count if share is None else share for share in self._shares]
        if of_samples is not None:
            self._sample_norm_layers(of_samples[0], of_samples[1], shares)
        if numbers is None:
            return
        squared, growth = numbers
        if count < 2:
            self.lone_steps += 1
            return
        if growth[0] != squared[0] and math.isfinite(growth[0]):
            self.stale_steps += 1
            return
        whole = sum(growth) / math.fsum(shares) ** 2  # of an overflowed step not a number, and so left out
        means = tuple(value / share**2 for value, share in zip(squared, shares, strict=True))
        weights = tuple(share / math.fsum(shares) for share in shares)
        self._samples.append(GradientNorms(tuple(self._tokens), means, whole, tokens=self.tokens, weights=weights))

    def _sample_norm_layers(self, within: Sequence[float], of_mean: float, shares: Sequence[float]) -> None:
        """A sampled step's single samples over norm layers; `within` is n·Σ_j |v_j|² of each micro-batch."""
        counts = [count for count in self._counts if count is not None]
        if len(counts) < len(shares) or len(within) < len(shares) or sum(counts) < 2:
            return
        total = math.fsum(shares)
        each = list(zip(counts, self._tokens, shares, within, strict=True))
        self._norm_layer_samples.append(
            GradientNorms(
                tuple(tokens / n for n, tokens, _, _ in each for _ in range(n)),
                tuple(value / share**2 for n, _, share, value in each for _ in range(n)),
                of_mean / total**2,
                tokens=self.tokens,
                weights=tuple(share / (n * total) for n, _, share, _ in each for _ in range(n)),
            )
        )

    @property
    def samples(self) -> Sequence[GradientNorms]:
        """Every sampled step's norms, for `batchlab.analysis.noise_scale`."""
        return tuple(self._samples)

    def noise_scale(self) -> NoiseScale:
        """B_simple over all sampled steps, in what `tokens` counted; `reason` says why there is none."""
        found = noise_scale(self._samples)
        if self._samples or found.value is not None:
            return found
        return NoiseScale(**{**{name: getattr(found, name) for name in found.__slots__}, "reason": self._why_none()})

    def norm_layer_noise_scale(self) -> NoiseScale | None:
        """That of norm layers alone, from single samples: cheap, and another number, to be multiplied by the ratio of
        the two where both are there. None where `samples` were not given, or no norm layer tells them apart."""
        return noise_scale(self._norm_layer_samples) if self._norm_layer_samples else None

    def noise_scales(self, window: int) -> tuple[NoiseScale, ...]:
        """One for every `window` sampled steps: it grows during training."""
        return noise_scale_series(self._samples, window)

    def _why_none(self) -> str:
        if self._watched.why_not:
            return f"The gradients cannot be measured: {why_no_gradient_samples(self._watched.why_not)}."
        if self.lone_steps:
            return (
                "Every sampled step was one micro-batch, whose noise cannot be told from its gradient: accumulate over "
                "at least 2, or cut the batch in two."
            )
        if self.stale_steps:
            return "Gradients of an earlier step were still there when sampled steps began: call zero_grad() each step."
        return f"No step was sampled in {self.steps} steps; every {self._every}th is."

    @property
    def tokens_per_second(self) -> float | None:
        """Since the first micro-batch, everything in the loop included."""
        if self._began is None or not self.steps:
            return None
        seconds = self._watched.now() - self._began
        return self.tokens / seconds if seconds > 0 else None

    @property
    def peak_bytes(self) -> int | None:
        """At most allocated since `observe`; on a CPU by the whole process above that moment."""
        peak: int | None = self._watched.peak_bytes()
        return peak

    def summary(self) -> str:
        """One line: noise scale with its interval and n, tokens/s, peak memory."""
        found, speed, peak = self.noise_scale(), self.tokens_per_second, self.peak_bytes
        if found.value is not None:
            value = found.value
            said = f"noise scale {value.value:.3g} [{value.low or 0:.3g}, {value.high or math.inf:.3g}]"
        elif found.at_least is not None:
            said = f"noise scale at least {found.at_least:.3g}"
        else:
            said = f"noise scale not known ({found.reason.rstrip('.')})"
        parts = [f"{said}, n = {found.steps} sampled steps"]
        inner = self.norm_layer_noise_scale()
        if inner is not None and inner.value is not None:
            value = inner.value
            parts.append(f"of norm layers {value.value:.3g} [{value.low or 0:.3g}, {value.high or math.inf:.3g}]")
        if found.overflowed:
            parts.append(f"{found.overflowed} overflowed steps left out")
        if speed is not None:
            parts.append(f"{speed:,.0f} tokens/s")
        if peak is not None:
            parts.append(f"peak {format_bytes(peak)}")
        return " · ".join(parts)
