"""Lines about training: seeds, learning rate, evaluation, gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.format import format_count
from batchlab.runs.bench import LEARNING_RATE, Bench, Verdict, close, copy, distance, norm, same_bits


def seeds(bench: Bench) -> Verdict:
    trainable = bench.trainable
    bench.start(0)
    first = copy(trainable.parameters())
    bench.step(LEARNING_RATE)
    trained = copy(trainable.parameters())
    bench.start(0)
    second = copy(trainable.parameters())
    if not same_bits(first, second):
        if same_bits(second, trained):
            return "fail", (
                "the model goes on from where the last run ended: model= returns the same module every time; build a "
                "new one inside the function"
            )
        name = next(name for name in first if not np.array_equal(first[name], second[name]))
        return "fail", (
            f"seed 0 twice gives different parameters (first in {name}); draw them from the framework's or numpy's "
            "global random numbers, which are seeded before model= is called"
        )
    bench.start(1)
    if same_bits(first, copy(trainable.parameters())):
        return "note", (
            "every seed gives the same parameters (loaded, or seeded inside model=): seeds then measure only the order "
            "of the data and dropout"
        )
    return "ok", "the same seed starts from the same parameters to the bit, another seed from others"


def learning_rate_honoured(bench: Bench, own_optimizer: bool) -> Verdict:
    """LR 0 moves nothing, at the start and after three steps; twice the LR moves differently."""
    trainable = bench.trainable
    whose = "your optimizer" if own_optimizer else "the optimizer"
    remedy = "read lr from param_groups at every step and leave schedules to batchlab"
    start = bench.start()
    origin = copy(trainable.parameters())
    bench.accumulate(bench.batch)
    if not norm(trainable.gradients()):
        trainable.apply(0.0)
        return "note", "not tested: no gradient reaches any parameter"
    trainable.apply(0.0)
    moved_at_zero = not same_bits(origin, trainable.parameters())
    paths: list[dict[str, npt.NDArray[Any]]] = []
    for learning_rate in (LEARNING_RATE, 2 * LEARNING_RATE):
        trainable.load(start)
        for _ in range(3):
            bench.step(learning_rate)
        after = copy(trainable.parameters())
        paths.append({name: after[name] - origin[name] for name in origin})
        bench.step(0.0)
        moved_at_zero |= not same_bits(after, trainable.parameters())
    single, double = (norm(path) for path in paths)
    if not (math.isfinite(single) and math.isfinite(double)):
        return "note", f"not tested: parameters are not finite after three steps at {2 * LEARNING_RATE:g}"
    if moved_at_zero:
        return "fail", f"{whose} moves the parameters at learning rate 0, so it has a rate of its own; {remedy}"
    if single == 0.0:
        return "fail", f"{whose} moves nothing in three steps at {LEARNING_RATE:g}; {remedy}"
    if distance(paths[1], paths[0]) < 0.05:
        return "fail", f"{whose} moves the same at {LEARNING_RATE:g} and at twice that; {remedy}"
    return "ok", f"at 0 nothing moves; twice the rate goes {double / single:.2g} × as far in three steps"


def evaluation(bench: Bench) -> Verdict:
    """The same bits twice, no noise, and nothing changed: not even buffers, random state or the next training step."""
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
    losses = [float(trainable.evaluate(bench.batch)[0]) for _ in range(2)]
    backwards = float(trainable.evaluate(bench.pick(reversed(range(bench.size))))[0])
    if not np.array_equal(losses[0], losses[1], equal_nan=True):
        return "fail", (
            f"evaluating the same batch twice gives {losses[0]:.6g} and {losses[1]:.6g}; switch off what is random in "
            "evaluation (is dropout called with training=True, or model.train() in your loss function?)"
        )
    if not close(losses[0], backwards, bench.loss_tolerance, abs(losses[0])) and math.isfinite(losses[0]):
        return "fail", (
            f"the loss of a batch changes with the order of its samples ({losses[0]:.6g} and {backwards:.6g}), so "
            "something random stays on in evaluation (dropout with training=True?)"
        )
    if not same_bits(origin, trainable.parameters()):
        return "fail", "evaluation changes parameters; compute the loss without training on it"
    if before == stable and trainable.state() != before:
        return "fail", (
            "evaluation changes the model's buffers or random state; do not call model.train() or draw random numbers "
            "in your loss function or metric"
        )
    bench.step(LEARNING_RATE)
    if not repeatable:
        return "note", "repeats to the bit; a training step from the same state does not, so resumed runs may differ"
    if not same_bits(expected, trainable.parameters()):
        return "fail", "the training step after an evaluation differs from the one without; keep no state in the loss"
    return "ok", "repeats to the bit and changes nothing"


def gradients_reach(bench: Bench) -> Verdict:
    trainable = bench.trainable
    bench.start()
    names = list(trainable.parameters())
    reached: set[str] = set()
    for step in range(3):  # a zero-initialised layer lets gradients through only after its own first step
        bench.accumulate(bench.batch)
        for name, gradient in trainable.gradients().items():
            if not np.isfinite(gradient).all():
                return "fail", f"the gradient of {name} is not finite at step {step + 1}"
            if np.any(gradient):
                reached.add(name)
        trainable.apply(LEARNING_RATE)
    missing = [name for name in names if name not in reached]
    if not missing:
        return "ok", f"reach all {format_count(trainable.parameter_count())} parameters ({len(names)} tensors)"
    if not reached:
        return "fail", "no gradient reaches any parameter; is the model's output detached from the loss?"
    listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return "note", f"none reaches {listed} ({len(missing)} of {len(names)} tensors); are they meant to be used?"
