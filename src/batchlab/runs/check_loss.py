"""Checks of the loss function: what it averages over, and whether a batch may be split."""

from __future__ import annotations

import math

import numpy as np

from batchlab.core.check import HalvesLoss, ReductionFinding, SplittingFinding, StartLoss
from batchlab.runs.bench import Bench, Verdict, close, copy, distance, norm


def loss_at_start(bench: Bench, vocabulary: int | None) -> Verdict:
    """The loss of an untrained model, against ln(vocabulary), that of a uniform prediction."""
    bench.start()
    total, count = bench.trainable.evaluate(bench.batch)
    loss = float(total) / count
    if not math.isfinite(loss):
        return "fail", StartLoss(found="not_finite", loss=loss)
    if not vocabulary or vocabulary < 2:
        return "ok", StartLoss(found="finite", loss=loss)
    uniform = math.log(vocabulary)
    if loss > 1.3 * uniform + 0.3:
        return "note", StartLoss(found="far_above_uniform", loss=loss, vocabulary=vocabulary)
    if loss < 0.7 * uniform:
        return "note", StartLoss(found="far_below_uniform", loss=loss, vocabulary=vocabulary)
    return "ok", StartLoss(found="finite", loss=loss, vocabulary=vocabulary)


def reduction(bench: Bench) -> Verdict:
    """Is what the loss function returns a mean over `count` targets, or a sum, as it was declared?"""
    bench.start()
    trainable, (first, second) = bench.trainable, bench.halves
    whole, again, one, other = (trainable.raw_loss(part) for part in (bench.batch, bench.batch, first, second))
    losses = HalvesLoss(samples=bench.size, whole=whole, first=one, second=other)
    if not all(map(math.isfinite, (whole, one, other))):
        return "note", ReductionFinding(found="not_finite", losses=losses)
    if not close(whole, again, bench.loss_tolerance, abs(whole)):
        return "note", ReductionFinding(found="not_repeatable", losses=losses)
    scale = abs(one) + abs(other)
    if scale == 0.0 and whole == 0.0:
        return "note", ReductionFinding(found="zero", losses=losses)
    weights = [trainable.count(part) for part in (first, second)]
    mean = (weights[0] * one + weights[1] * other) / sum(weights)
    is_mean = close(whole, mean, bench.loss_tolerance, scale)
    is_sum = close(whole, one + other, bench.loss_tolerance, scale)
    if (own_count := trainable.loss_count(bench.batch)) is not None:
        verdict = _with_own_count(losses, own_count, trainable.count(bench.batch), is_mean, is_sum)
    else:
        verdict = _as_declared(losses, is_mean, is_sum, _declared_sum(bench, whole))
    if verdict is not None:
        return verdict
    if (ratio := _target_ratio(bench, whole)) is not None:
        return "fail", ReductionFinding(found="mean_over_other_targets", losses=losses, target_ratio=ratio)
    return "note", ReductionFinding(found="neither", losses=losses)


def _with_own_count(losses: HalvesLoss, own: float, counted: float, is_mean: bool, is_sum: bool) -> Verdict | None:
    """For a loss that returns (sum, count); None where it is neither a mean nor a sum."""
    if not math.isclose(own, counted, rel_tol=1e-6):
        return "fail", ReductionFinding(found="count_differs", losses=losses, own_count=own, count=counted)
    if is_mean:
        return "fail", ReductionFinding(found="mean_with_count", losses=losses, own_count=own)
    return ("ok", ReductionFinding(found="sum_with_count", losses=losses, own_count=own)) if is_sum else None


def _as_declared(losses: HalvesLoss, is_mean: bool, is_sum: bool, declared_sum: bool) -> Verdict | None:
    """For a loss that returns one number; None where it is neither a mean nor a sum."""
    if is_mean and not declared_sum:
        return "ok", ReductionFinding(found="mean", losses=losses)
    if is_sum and declared_sum:
        return "ok", ReductionFinding(found="sum", losses=losses)
    if is_sum:
        return "fail", ReductionFinding(found="sum_not_declared", losses=losses)
    return ("fail", ReductionFinding(found="mean_declared_as_sum", losses=losses)) if is_mean else None


def _declared_sum(bench: Bench, raw: float) -> bool:
    """Whether the task says reduction="sum": `evaluate` then passes the raw loss through instead of multiplying."""
    total, count = bench.trainable.evaluate(bench.batch)
    return abs(float(total) - raw) < abs(float(total) - raw * count)


def _target_ratio(bench: Bench, whole: float) -> tuple[float, float] | None:
    """(least, most) of true ÷ counted targets per sample, if the loss is a weighted mean of its samples; else None.

    A mean over targets puts the loss of a pair between the losses of its two samples, at a point that shows their
    weights. Weights found from pairs must then predict the loss of the whole batch; where samples influence each other,
    they do not. Each sample is paired with the more distant of the two extreme ones, so that the division is safe.
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


def splitting(bench: Bench, reduction_unknown: bool) -> Verdict:
    """Gradient of the whole batch against the sum over its halves; sets `bench.mixes` to what mixes samples.

    `reduction_unknown`: the check of mean or sum failed, so the loss may count targets that it does not average over.
    """
    trainable, size = bench.trainable, bench.size
    if not trainable.sample_independent:
        return "note", SplittingFinding(found="declared_dependent", samples=size)
    start = bench.start()
    bench.accumulate(bench.batch)
    once = copy(trainable.gradients())
    bench.accumulate(bench.batch)
    repeated = distance({name: value - once[name] for name, value in trainable.gradients().items()}, once)
    trainable.apply(0.0)
    trainable.load(start)
    if not once or norm(once) == 0.0:
        return "note", SplittingFinding(found="no_gradient", samples=size)
    if not repeated <= bench.tolerance:
        return "note", SplittingFinding(found="not_repeatable", samples=size, difference=repeated)
    bench.accumulate(*bench.halves)
    difference = distance(trainable.gradients(), once)
    trainable.apply(0.0)
    trainable.load(start)
    if difference <= bench.tolerance:
        return "ok", SplittingFinding(found="equal", samples=size, difference=difference)
    layer = trainable.mixing_layer(bench.batch, size // 2)
    if layer is None and reduction_unknown:
        return "note", SplittingFinding(found="reduction_unknown", samples=size, difference=difference)
    bench.mixes = layer or "the loss function"
    return "note", SplittingFinding(found="mixes", samples=size, difference=difference, layer=layer)
