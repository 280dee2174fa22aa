"""Checks of training: seeds, learning rate, evaluation, gradients."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.check import EvaluationFinding, GradientFinding, LearningRateFinding, SeedFinding
from batchlab.runs.bench import LEARNING_RATE, Arrays, Bench, Verdict, close, copy, distance, norm, same_bits

SAME_PATH = 0.05
"""Below this relative distance, parameters moved equally at a learning rate and at twice that."""


def seeds(bench: Bench) -> Verdict:
    """One seed starts from the same parameters every time; another seed starts from others."""
    trainable = bench.trainable
    bench.start(0)
    first = copy(trainable.parameters())
    bench.step(LEARNING_RATE)
    trained = copy(trainable.parameters())
    bench.start(0)
    second = copy(trainable.parameters())
    if not same_bits(first, second):
        if same_bits(second, trained):
            return "fail", SeedFinding(found="same_module")
        name = next(name for name in first if not np.array_equal(first[name], second[name]))
        return "fail", SeedFinding(found="not_seeded", parameter=name)
    bench.start(1)
    if same_bits(first, copy(trainable.parameters())):
        return "note", SeedFinding(found="ignored")
    return "ok", SeedFinding(found="honoured")


def learning_rate_honoured(bench: Bench, own_optimizer: bool) -> Verdict:
    """LR 0 moves nothing, at the start and after three steps; twice the LR moves parameters differently.

    Where the optimizer has several groups, each of them is held to that.
    """
    trainable = bench.trainable
    finding = partial(LearningRateFinding, own_optimizer=own_optimizer, learning_rate=LEARNING_RATE)
    start = bench.start()
    groups = trainable.optimizer_groups()
    origin = copy(trainable.parameters())
    bench.accumulate(bench.batch)
    if not norm(trainable.gradients()):
        trainable.apply(0.0)
        return "note", finding(found="no_gradient")
    trainable.apply(0.0)
    moved_at_zero = _differing(origin, trainable.parameters())
    paths: list[dict[str, npt.NDArray[Any]]] = []
    for learning_rate in (LEARNING_RATE, 2 * LEARNING_RATE):
        trainable.load(start)
        for _ in range(3):
            bench.step(learning_rate)
        after = copy(trainable.parameters())
        paths.append({name: after[name] - origin[name] for name in origin})
        bench.step(0.0)
        moved_at_zero |= _differing(after, trainable.parameters())
    single, double = (norm(path) for path in paths)
    if not (math.isfinite(single) and math.isfinite(double)):
        return "note", finding(found="parameters_not_finite")
    if moved_at_zero:
        group = next((one for one, names in groups if moved_at_zero.intersection(names)), None)
        return "fail", finding(found="moves_at_zero", group=group if len(groups) > 1 else None)
    if single == 0.0:
        return "fail", finding(found="moves_nothing")
    if distance(paths[1], paths[0]) < SAME_PATH:
        return "fail", finding(found="ignores_changes")
    for group, names in groups if len(groups) > 1 else ():
        before, once, twice = ({name: arrays[name] for name in names} for arrays in (origin, *paths))
        # A group that hardly moves is not judged: rounding may make both distances equal.
        if norm(once) > bench.tolerance * norm(before) and distance(twice, once) < SAME_PATH:
            return "fail", finding(found="ignores_changes", group=group)
    return "ok", finding(found="honoured", distance_ratio=double / single)


def _differing(one: Arrays, other: Arrays) -> set[str]:
    """Names of the tensors that are not the same to the bit."""
    return {name for name in one if not np.array_equal(one[name], other[name], equal_nan=True)}


def evaluation(bench: Bench) -> Verdict:
    """The same bits twice, and nothing changed: not even buffers, random state or the next training step.

    A loss that draws noise is no fault: evaluations draw the same each time, for samples in the same order.
    """
    trainable = bench.trainable
    start = bench.start(quiet=False)
    bench.step(LEARNING_RATE)
    expected = copy(trainable.parameters())
    trainable.load(start)
    bench.step(LEARNING_RATE)
    repeatable = same_bits(expected, trainable.parameters())

    trainable.load(start)
    before, stable = trainable.state(), trainable.state()
    origin = copy(trainable.parameters())
    first, second = (float(trainable.evaluate(bench.batch)[0]) for _ in range(2))
    redrawn = bench.redrawn(first)
    finding = partial(EvaluationFinding, losses=(first, second))
    if not np.array_equal(first, second, equal_nan=True):
        return "fail", finding(found="random")
    if redrawn == first:  # else the order of the samples decides which draw each of them gets
        backwards = float(trainable.evaluate(bench.pick(reversed(range(bench.size))))[0])
        if not close(first, backwards, bench.loss_tolerance, abs(first)) and math.isfinite(first):
            return "note", EvaluationFinding(found="depends_on_order", losses=(first, backwards))
    if not same_bits(origin, trainable.parameters()):
        return "fail", finding(found="changes_parameters")
    if before == stable and trainable.state() != before:
        return "fail", finding(found="changes_state")
    bench.step(LEARNING_RATE)
    if not repeatable:
        return "note", finding(found="training_not_repeatable")
    if not same_bits(expected, trainable.parameters()):
        return "fail", finding(found="changes_training")
    if redrawn != first and math.isfinite(first):
        return "note", EvaluationFinding(found="draws", losses=(first, redrawn))
    return "ok", finding(found="pure")


def gradients_reach(bench: Bench) -> Verdict:
    """Every trainable parameter gets a gradient within three steps."""
    trainable = bench.trainable
    bench.start()
    names = list(trainable.parameters())
    finding = partial(GradientFinding, parameter_count=trainable.parameter_count(), tensors=len(names))
    reached: set[str] = set()
    for step in range(3):  # a zero-initialised layer lets gradients through only after its own first step
        bench.accumulate(bench.batch)
        for name, gradient in trainable.gradients().items():
            if not np.isfinite(gradient).all():
                return "fail", finding(found="not_finite", names=(name,), step=step + 1)
            if np.any(gradient):
                reached.add(name)
        trainable.apply(LEARNING_RATE)
    missing = tuple(name for name in names if name not in reached)
    if not missing:
        return "ok", finding(found="all")
    if not reached:
        return "fail", finding(found="none", names=missing)
    return "note", finding(found="some", names=missing)
