"""Lines about the loss function: what it averages over, and whether a batch may be split."""

from __future__ import annotations

import math

import numpy as np

from batchlab.runs.bench import Bench, Verdict, close, copy, distance, norm


def loss_at_start(bench: Bench, vocabulary: int | None) -> Verdict:
    bench.start()
    total, count = bench.trainable.evaluate(bench.batch)
    loss = float(total) / count
    if not math.isfinite(loss):
        return "fail", (
            f"the loss is {loss} before any training; look for a logarithm of 0, a division by 0 or a mean over no "
            "targets in your loss function"
        )
    if not vocabulary or vocabulary < 2:
        return "ok", f"{loss:.4g} at the start"
    uniform = math.log(vocabulary)
    text = f"{loss:.4g} at the start; knowing nothing costs ln({vocabulary:,}) = {uniform:.3g}"
    if loss > 1.3 * uniform + 0.3:
        return "note", f"{text}: far above, so the first steps only undo the initialisation"
    if loss < 0.7 * uniform:
        return "note", f"{text}: far below, as for a model that was trained before"
    return "ok", text


def reduction(bench: Bench) -> Verdict:
    """Is what the loss function returns a mean over `count` targets, or a sum, as it was declared?"""
    bench.start()
    trainable, (first, second) = bench.trainable, bench.halves
    whole, again, one, other = (trainable.raw_loss(part) for part in (bench.batch, bench.batch, first, second))
    if not all(map(math.isfinite, (whole, one, other))):
        return "note", "not tested: the loss is not finite"
    if not close(whole, again, bench.loss_tolerance, abs(whole)):
        return "note", "not tested: the same batch gives different losses (see 'evaluation')"
    scale = abs(one) + abs(other)
    weights = [trainable.count(part) for part in (first, second)]
    mean = (weights[0] * one + weights[1] * other) / sum(weights)
    is_mean = close(whole, mean, bench.loss_tolerance, scale)
    is_sum = close(whole, one + other, bench.loss_tolerance, scale)
    size, half = bench.size, bench.size // 2
    measured = f"loss of {size} samples {whole:.4g}, of its halves {one:.4g} and {other:.4g}"
    if scale == 0.0 and whole == 0.0:
        return "note", "cannot tell: the loss is exactly 0 at the start"
    if (own_count := trainable.loss_count(bench.batch)) is not None:
        counted = trainable.count(bench.batch)
        if not math.isclose(own_count, counted, rel_tol=1e-6):
            return "fail", (
                f"the loss counts {own_count:g} targets in {size} samples, but {counted:g} are known beforehand; pass "
                "count=lambda x, y: … that gives the same number"
            )
        if is_mean:
            return "fail", f"the loss returns (mean, count): return the sum over its targets first ({measured})"
        if is_sum:
            return "ok", f"a sum with its own count, {own_count:g} targets in {size} samples"
    elif is_mean or is_sum:
        as_sum = _declared_sum(bench, whole)
        if is_mean and not as_sum:
            return "ok", f"a mean: {measured}"
        if is_sum and as_sum:
            return "ok", f"a sum, as declared: {measured}"
        if is_sum:
            return "fail", (
                f"the loss is a sum ({measured}), so the learning rate would grow with the batch; return a mean, or "
                'pass reduction="sum"'
            )
        return "fail", f'the loss is a mean ({measured}), not a sum; leave out reduction="sum"'
    if (spread := _hidden_counts(bench, whole)) is not None:
        low, high = spread
        return "fail", (
            f"the loss is a mean over other targets than are counted ({low:.2g} to {high:.2g} × from sample to sample, "
            "as with padding); pass count=lambda x, y: … (e.g. the number of targets that are not padding) or return "
            "(sum, count)"
        )
    return "note", f"neither mean nor sum over {half} + {half} samples, so samples influence each other ({measured})"


def _declared_sum(bench: Bench, raw: float) -> bool:
    """Whether the task says reduction="sum": `evaluate` then passes the raw loss through instead of multiplying."""
    total, count = bench.trainable.evaluate(bench.batch)
    return abs(float(total) - raw) < abs(float(total) - raw * count)


def _hidden_counts(bench: Bench, whole: float) -> tuple[float, float] | None:
    """(least, most) of true ÷ assumed targets per sample, if the loss is a weighted mean of its samples; else None.

    A mean over targets puts the loss of a pair between the losses of its two samples, at a place that tells their
    weights. Weights found from pairs must then predict the loss of the whole batch; a loss whose samples influence each
    other does not. Each sample is paired with the more distant of the two extreme ones, so that the division is safe.
    """
    trainable, size = bench.trainable, bench.size
    single = [trainable.raw_loss(bench.part(i, i + 1)) for i in range(size)]
    if any(math.isnan(loss) for loss in single):  # a mean over no targets at all
        return 0.0, 1.0
    low, high = int(np.argmin(single)), int(np.argmax(single))
    width = single[high] - single[low]
    if width <= bench.loss_tolerance * abs(whole):
        return None

    def ratio(sample: int, reference: int) -> float:
        pair = trainable.raw_loss(bench.pick((reference, sample)))
        beyond = pair - single[sample]
        return (single[reference] - pair) / beyond if beyond else math.inf

    weights = np.ones(size)
    weights[high] = ratio(high, low)
    for sample in set(range(size)) - {low, high}:
        reference = low if single[sample] - single[low] > width / 2 else high
        weights[sample] = weights[reference] * ratio(sample, reference)
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        return None
    predicted = float(np.average(single, weights=weights))
    if abs(predicted - whole) > 0.02 * width + bench.loss_tolerance * abs(whole):
        return None
    relative = weights / np.array([trainable.count(bench.part(i, i + 1)) for i in range(size)])
    relative /= np.median(relative)
    return float(relative.min()), float(relative.max())


def splitting(bench: Bench, miscounted: bool) -> Verdict:
    """Gradient of the whole batch against the sum over its halves; what mixes samples is left in `bench.mixes`."""
    trainable = bench.trainable
    if not trainable.sample_independent:
        return "note", "declared sample_independent=False: batches are never split"
    start = bench.start()
    bench.accumulate(bench.batch)
    once = copy(trainable.gradients())
    bench.accumulate(bench.batch)
    repeated = distance({name: value - once[name] for name, value in trainable.gradients().items()}, once)
    trainable.apply(0.0)
    trainable.load(start)
    if not once or norm(once) == 0.0:
        return "note", "not tested: no gradient reaches any parameter"
    if not repeated <= bench.tolerance:
        return "note", (
            f"not tested: with dropout off, the same batch twice gives gradients {100 * repeated:.1f} % apart; the "
            "forward pass is random in some other way"
        )
    bench.accumulate(*bench.halves)
    difference = distance(trainable.gradients(), once)
    trainable.apply(0.0)
    trainable.load(start)
    size, half = bench.size, bench.size // 2
    if difference <= bench.tolerance:
        return "ok", f"gradients of {size} samples and of {half} + {half} agree to {difference:.0e}"
    layer = trainable.mixing_layer(bench.batch, half)
    if layer is None and miscounted:
        return "note", "not judged until the line above is mended"
    bench.mixes = layer or "the loss function"
    statistics = "; its statistics depend on the batch" if layer and "norm" in layer.lower() else ""
    return "note", (
        f"{bench.mixes} mixes samples{statistics}: gradients of {size} and of {half} + {half} samples are "
        f"{100 * difference:.1f} % apart. Batches are never split, so the largest batch is what fits at once"
    )
