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

Gradients are measured while they are accumulated, by the hooks that batchlab's own loop uses. Nothing is copied, and
clipping or the optimizer may change `.grad` afterwards. Gradients must be cleared between steps.

In data-parallel training give `observe` the model in DistributedDataParallel, in every process: the noise scale is then
that of all processes, and one micro-batch on each of them is enough. Tokens per second, memory, and what norm layers
measure are those of this process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

from batchlab.analysis.critical.noise_scale import GradientNorms, NoiseScale, noise_scale, noise_scale_series
from batchlab.core.errors import InputError
from batchlab.core.frameworks import load_framework, name_of_model, possible_models
from batchlab.core.protocols import Watched
from batchlab.words.observation import no_sampled_step, observation_line

EVERY = 25
"""Every how many steps one is sampled by default; its cost is in benchmarks/noise_cost/results.md."""


def observe(
    model: Any,
    *,
    every: int = EVERY,
    scaler: Any = None,
    parameters: Literal["all", "norm_layers"] = "all",
) -> Observation:
    """Watch the gradients of a torch or MLX model in your own training loop.

    every: steps from one sampled step to the next. scaler: the torch.amp.GradScaler in use; its factor is divided out,
    and overflowed steps are left out and counted. parameters: "norm_layers" is cheaper, but another noise scale.

    Raises InputError where `every` is below 1 or the model cannot be watched.
    """
    if every < 1:
        raise InputError(f"observe(every={every}): give a whole number of at least 1.")
    name = name_of_model(model)
    if name is None:
        raise InputError(f"observe() takes a {possible_models()}, not {type(model).__name__}.")
    return Observation(load_framework(name).watched(model, parameters, scaler), every)


def _ignore(gradient: Any) -> None:
    pass


class Observation:
    """What was measured so far. Made by `observe`."""

    def __init__(self, watched: Watched, every: int) -> None:
        self._watched = watched
        self._every = every
        self._tokens: list[float] = []
        self._shares: list[float | None] = []
        self._counts: list[int | None] = []
        self._samples: list[GradientNorms] = []
        self._norm_layer_samples: list[GradientNorms] = []
        self._began: float | None = None
        self._uncomputed = 0
        self.steps = 0
        self.tokens = 0.0
        self.lone_steps = 0  # sampled steps of a single micro-batch, which show no noise
        self.stale_steps = 0  # sampled steps that began with gradients left from before

    @property
    def _sampled(self) -> bool:
        return (self.steps + 1) % self._every == 0 and not self._watched.why_not

    @contextmanager
    def micro_batch(
        self, tokens: float, share: float | None = None, samples: int | None = None
    ) -> Iterator[Callable[[Any], None]]:
        """Put around the backward pass of one micro-batch of `tokens` targets or samples, the unit of the noise scale.

        share: what the mean loss of the micro-batch was multiplied by before backward, by default 1/accumulation;
        give tokens/total where the loss is divided by the tokens of the whole step. samples: the number of samples,
        each with equally many targets; with it, and with the forward pass inside too, norm layers measure single
        samples, so that a single micro-batch is enough for `norm_layer_noise_scale`.

        MLX returns gradients and keeps none, so hand them over: `with obs.micro_batch(tokens=…) as measure: … ;
        measure(gradients)`, multiplied by the share as they are added up.
        """
        if samples is not None and samples < 1:
            raise InputError(f"micro_batch(samples={samples}): give the number of samples in it, at least 1.")
        if not (tokens > 0 and math.isfinite(tokens)):
            raise InputError(f"micro_batch(tokens={tokens}): give the number of targets in it, at least 1.")
        if self._began is None:
            self._began = self._watched.now()
        with self._watched.backward_pass(samples) if self._sampled else nullcontext(_ignore) as take:
            yield take
        self._tokens.append(float(tokens))
        self._counts.append(samples)
        self._shares.append(share)

    def step(self) -> None:
        """Call after the last micro-batch of an optimizer step, also where the optimizer skipped it."""
        if not self._tokens:
            raise InputError("step() came without a micro_batch() before it.")
        self._uncomputed = self._watched.uncomputed_steps()
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
        squared, growth = numbers or ([], [])
        stale = bool(squared) and growth[0] != squared[0] and math.isfinite(growth[0])
        own = [] if stale else [*zip(self._tokens, shares, squared, strict=False)]
        everyone = self._watched.of_all_processes([number for one in own for number in one])
        if stale:
            self.stale_steps += 1
        elif everyone is not None:
            parts, mean = everyone
            if all(parts):
                micro_batches = [one for part in parts for one in zip(part[::3], part[1::3], part[2::3], strict=True)]
                self._add_sample(micro_batches, mean * len(parts) ** 2)
        elif own and count < 2:
            self.lone_steps += 1
        elif own:
            self._add_sample(own, sum(growth))

    def _add_sample(self, micro_batches: Sequence[tuple[float, float, float]], whole: float) -> None:
        """Add a step of micro-batches, each with its tokens, share and |v|²; `whole` is |Σ v|², not a number where the
        step overflowed."""
        tokens, shares, squared = zip(*micro_batches, strict=True)
        total = math.fsum(shares)
        means = tuple(value / share**2 for value, share in zip(squared, shares, strict=True))
        weights = tuple(share / total for share in shares)
        self._samples.append(GradientNorms(tokens, means, whole / total**2, tokens=self.tokens, weights=weights))

    def _sample_norm_layers(self, within: Sequence[float], of_mean: float, shares: Sequence[float]) -> None:
        """Add the single samples of a step over norm layers; `within` is n·Σ_j |v_j|² of each micro-batch."""
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
        """The norms of every sampled step, as `noise_scale` takes them."""
        return tuple(self._samples)

    def noise_scale(self) -> NoiseScale:
        """B_simple over all sampled steps, in what `tokens` counted; `summary` says why there is none."""
        return noise_scale(self._samples)

    def norm_layer_noise_scale(self) -> NoiseScale | None:
        """B_simple of norm layers alone, from single samples: cheap, but another number, to be multiplied by the ratio
        of the two where both are known. None where `samples` was not given or the model has no norm layer that measures
        single samples."""
        return noise_scale(self._norm_layer_samples) if self._norm_layer_samples else None

    def noise_scales(self, window: int) -> tuple[NoiseScale, ...]:
        """One noise scale per `window` sampled steps, because it grows during training."""
        return noise_scale_series(self._samples, window)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second since the first micro-batch, everything in the loop included."""
        if self._began is None or not self.steps:
            return None
        seconds = self._watched.now() - self._began
        return self.tokens / seconds if seconds > 0 else None

    @property
    def peak_bytes(self) -> int | None:
        """Peak allocated memory since `observe`; on a CPU that of the whole process above its memory then."""
        return self._watched.peak_bytes()

    def summary(self) -> str:
        """One line: the noise scale with its interval and n or why it is unknown, tokens/s, peak memory."""
        return observation_line(
            self.noise_scale(),
            self.norm_layer_noise_scale(),
            self.tokens_per_second,
            self.peak_bytes,
            missing=self._missing(),
            uncomputed=self._uncomputed,
        )

    def _missing(self) -> str:
        if self._samples:
            return ""
        return no_sampled_step(
            unmeasurable=self._watched.why_not,
            single=self.lone_steps,
            stale=self.stale_steps,
            steps=self.steps,
            every=self._every,
        )
