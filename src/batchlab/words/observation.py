"""What `batchlab.observe` saw of a training loop, in one line."""

from __future__ import annotations

from batchlab.analysis.critical.noise_scale import NoiseScale
from batchlab.core.format import format_bytes, format_count, format_plural
from batchlab.core.record import NoGradientSamples
from batchlab.words.critical_reasons import noise_reason
from batchlab.words.estimates import format_noise
from batchlab.words.gradient_samples import why_no_gradient_samples


def observation_line(
    found: NoiseScale,
    norm_layers: NoiseScale | None,
    tokens_per_second: float | None,
    peak_bytes: int | None,
    *,
    missing: str = "",
    uncomputed: int = 0,
) -> str:
    """The noise scale with its interval and n, tokens/s, and peak memory. `missing`: why no step was sampled;
    `uncomputed`: steps in a row after which the loop had computed nothing."""
    text = f"noise scale {format_noise(found)}"
    if found.value is None and found.at_least is None:
        text = f"noise scale unknown ({missing or noise_reason(found)})"
    parts = [f"{text}, n = {format_plural(found.steps, 'sampled step')}"]
    if norm_layers is not None and norm_layers.value is not None:
        parts.append(f"of norm layers {format_noise(norm_layers)}")
    if found.overflowed:
        parts.append(f"{format_plural(found.overflowed, 'overflowed step')} left out")
    if tokens_per_second is not None:
        parts.append(f"{format_count(tokens_per_second)} tokens/s")
    if peak_bytes is not None:
        parts.append(f"peak {format_bytes(peak_bytes)}")
    line = " · ".join(parts)
    return f"{line}\n{nothing_computed(uncomputed)}" if uncomputed else line


def nothing_computed(steps: int) -> str:
    """What a loop is told that evaluates none of its arrays."""
    return (
        f"The loop went on for at least {format_plural(steps, 'step')} without computing the model's parameters, so "
        "memory grew and tokens/s counts work that was not done: call "
        "mx.eval(model.parameters(), optimizer.state) after every update."
    )


def no_sampled_step(*, unmeasurable: NoGradientSamples | None, single: int, stale: int, steps: int, every: int) -> str:
    """Why no step gave a sample. `unmeasurable`: why the model's gradients cannot be measured; `single`: sampled steps
    of one micro-batch; `stale`: those that began with the gradients of an earlier step."""
    if unmeasurable is not None:
        return f"the gradients cannot be measured: {why_no_gradient_samples(unmeasurable)}"
    if single:
        return (
            "every sampled step was one micro-batch, whose noise is not distinguishable from its gradient: accumulate "
            "over at least 2, or split the batch in two"
        )
    if stale:
        return "gradients of an earlier step were left when sampled steps began: call zero_grad() after each step"
    return f"no step was sampled in {format_plural(steps, 'step')}; one in {every} is"
