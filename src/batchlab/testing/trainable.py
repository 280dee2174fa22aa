"""Contract test for Trainable, Inspectable and Diagnosable."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from batchlab.core.nested import batch_size, select
from batchlab.core.protocols import Batch, Diagnosable, Inspectable, Trainable
from batchlab.core.record import MeasuredMemory
from batchlab.testing.requirement import require, require_raises

_Arrays = Mapping[str, npt.NDArray[Any]]


def check_trainable(
    make: Callable[[], Trainable],
    batch: Batch,
    *,
    learning_rate: float = 1e-2,
    tolerance: float = 1e-5,
) -> None:
    """Check every requirement of `Trainable`, and those of `Inspectable` and `Diagnosable` if they are implemented.

    `make` returns a new Trainable with the same settings each time. `batch` needs at least 4 samples. `tolerance` is
    the relative rounding error allowed between a batch and the same batch in two parts; 1e-5 suits float32 and float64.
    Raises AssertionError for the first violated requirement.
    """
    require(batch_size(batch) >= 4, "the contract test needs a batch of at least 4 samples")
    _check_initialisation(make, batch, learning_rate)
    _check_step(make, batch, learning_rate)
    _check_evaluation(make, batch, learning_rate)
    _check_state(make, batch, learning_rate)
    _check_measurements(make, batch, learning_rate)
    trainable = make()
    if trainable.sample_independent:
        _check_parts(make, batch, learning_rate, tolerance)
    if isinstance(trainable, Diagnosable):
        _check_diagnostics(make, batch, learning_rate)
    if isinstance(trainable, Inspectable):
        _check_inspection(trainable, batch, learning_rate, tolerance)


def _check_initialisation(make: Callable[[], Trainable], batch: Batch, learning_rate: float) -> None:
    trainable, other = make(), make()
    trainable.init(3)
    first = trainable.state()
    start_loss = _loss(trainable, batch)
    require(math.isfinite(start_loss), f"the initial loss is {start_loss}; use a batch with a finite loss")
    _train(trainable, batch, learning_rate)
    trainable.init(3)
    require(_loss(trainable, batch) == start_loss, "init with the same seed must give bit-identical parameters")
    _train(trainable, batch, learning_rate)
    other.init(3)
    require(_loss(other, batch) == start_loss, "two objects initialised with the same seed must be bit-identical")
    _train(other, batch, learning_rate)
    require(
        _loss(trainable, batch) == _loss(other, batch),
        "init must also reset optimizer and random state: a step after a second init differs from one after the first",
    )
    require(isinstance(first, bytes), f"state() must return bytes, not {type(first).__name__}")


def _check_step(make: Callable[[], Trainable], batch: Batch, learning_rate: float) -> None:
    trainable = make()
    trainable.init(0)
    count = trainable.count(batch)
    require(count > 0, f"count(batch) is {count}; it must be positive")
    start_loss = _loss(trainable, batch)
    trainable.accumulate(batch, 1.0 / count)
    # If samples are not independent, a training pass may change statistics (BatchNorm) that the evaluation uses.
    require(
        not trainable.sample_independent or _loss(trainable, batch) == start_loss,
        "accumulate must not change the parameters",
    )
    stats = trainable.apply(learning_rate)
    loss, norm, clipped = float(stats.loss), float(stats.grad_norm), float(stats.clipped)
    require(math.isfinite(loss), f"StepStats.loss is {loss}")
    require(norm > 0 and math.isfinite(norm), f"StepStats.grad_norm is {norm}; it must be positive and finite")
    require(clipped in (0.0, 1.0), f"StepStats.clipped is {clipped}; it must be 0.0 or 1.0")
    require(_loss(trainable, batch) != start_loss, f"apply({learning_rate:g}) did not change the loss")

    trainable.init(0)
    trainable.accumulate(batch, 1.0 / count)
    trainable.apply(0.0)
    require(
        not trainable.sample_independent or _loss(trainable, batch) == start_loss, "apply(0.0) must change no parameter"
    )

    losses = []
    for rate in (learning_rate, 2 * learning_rate):
        trainable.init(0)
        trainable.accumulate(batch, 1.0 / count)
        trainable.apply(rate)
        losses.append(_loss(trainable, batch))
    require(losses[0] != losses[1], f"learning rates {learning_rate:g} and twice that gave the same step")

    # The gradient of one step must not leak into the next. A loaded state contains no gradient, so it is the reference.
    saved = trainable.state()
    norms: list[float] = []
    for target in (trainable, make()):
        if norms:
            target.init(0)
            target.load(saved)
        target.accumulate(batch, 1.0 / count)
        norms.append(float(target.apply(learning_rate).grad_norm))
    require(norms[0] == norms[1], f"apply must clear the gradient: the next norm is {norms[0]}, not {norms[1]}")


def _check_diagnostics(make: Callable[[], Trainable], batch: Batch, learning_rate: float) -> None:
    """One trainable after the other, because those of one process may share its random numbers."""
    plain = make()
    plain.init(0)
    for _ in range(3):
        _train(plain, batch, learning_rate)
    expected = _loss(plain, batch)
    watched = make()
    watched.init(0)
    _train(watched, batch, learning_rate)
    assert isinstance(watched, Diagnosable)
    for detail in ("light", "full"):
        watched.watch(detail)
        _train(watched, batch, learning_rate)
        readings = watched.readings(batch)
        require(bool(readings), f"readings() is empty after watch({detail!r}) and a step")
        require(all("/" in name for name in readings), f"readings must be named quantity/part, not {sorted(readings)}")
    require(_loss(watched, batch) == expected, "watching a step must leave training bit-identical")


def _check_evaluation(make: Callable[[], Trainable], batch: Batch, learning_rate: float) -> None:
    trainable = make()
    trainable.init(1)
    total, count = trainable.evaluate(batch)
    require(count == trainable.count(batch), f"evaluate counted {count}, but count(batch) is {trainable.count(batch)}")
    require(float(trainable.evaluate(batch)[0]) == float(total), "evaluating twice must give bit-identical losses")
    ends = []
    for evaluations in (2, 0):  # one after the other, because random state may be global to the process
        trainable.init(1)
        for _ in range(2):
            _train(trainable, batch, learning_rate)
            for _ in range(evaluations):
                trainable.evaluate(batch)
        ends.append(_loss(trainable, batch))
    require(
        ends[0] == ends[1], "evaluate must change nothing, but training with evaluations in between gave another result"
    )


def _check_state(make: Callable[[], Trainable], batch: Batch, learning_rate: float) -> None:
    trainable = make()
    trainable.init(2)
    for _ in range(2):
        _train(trainable, batch, learning_rate)
    saved = trainable.state()
    loss = _loss(trainable, batch)
    for _ in range(2):
        _train(trainable, batch, learning_rate)
    expected = _loss(trainable, batch)

    fresh = make()
    fresh.init(9)
    for target, name in ((fresh, "another object"), (trainable, "the same object")):
        target.load(saved)
        require(_loss(target, batch) == loss, f"load into {name} must restore bit-identical parameters")
        for _ in range(2):
            _train(target, batch, learning_rate)
        require(
            _loss(target, batch) == expected,
            f"load into {name} must continue bit-identically: the state includes optimizer and random state",
        )
    for bad, what in ((b"", "no bytes"), (b"not a state", "other bytes"), (saved[: len(saved) // 2], "half a state")):
        require_raises(lambda bad=bad: fresh.load(bad), f"load must raise for {what}")  # type: ignore[misc]
    _Bomb.exploded = False
    require_raises(lambda: fresh.load(pickle.dumps(_Bomb(), protocol=2)), "load must raise for a pickle")
    require(not _Bomb.exploded, "load executed code from the bytes; read states without pickle")


def _check_measurements(make: Callable[[], Trainable], batch: Batch, learning_rate: float) -> None:
    trainable = make()
    before = trainable.synchronize()  # a run reads the clock before it creates the parameters
    trainable.init(0)
    _train(trainable, batch, learning_rate)
    after = trainable.synchronize()
    require(after >= before, f"synchronize() went back from {before} to {after}")
    reading = trainable.memory()
    require(reading.measured in get_args(MeasuredMemory), f"memory().measured is {reading.measured!r}")
    for name, value in reading._asdict().items():
        counted = name == "measured" or value is None or (isinstance(value, int) and value >= 0)
        require(counted, f"memory().{name} is {value!r}")
    for now, peak in (
        (reading.reserved_bytes, reading.peak_bytes),
        (reading.in_use_bytes, reading.peak_in_use_bytes),
    ):
        require(now is None or peak is None or now <= peak, f"memory() reports {now} bytes now and {peak} at the peak")


def _check_parts(make: Callable[[], Trainable], batch: Batch, learning_rate: float, tolerance: float) -> None:
    """Compare one batch with the same batch in unequal parts over 5 steps, without dropout."""
    losses = []
    half = batch_size(batch) // 2 - 1
    for parts in ([batch], [select(batch, slice(half)), select(batch, slice(half, None))]):
        trainable = make()
        trainable.init(5)
        if isinstance(trainable, Inspectable):
            trainable.without_randomness()
        count = sum(trainable.count(part) for part in parts)
        require(
            math.isclose(count, trainable.count(batch)),
            f"the counts of the parts sum to {count}, but the count of the batch is {trainable.count(batch)}",
        )
        seen = []
        for _ in range(5):
            for part in parts:
                trainable.accumulate(part, 1.0 / count)
            seen.append(float(trainable.apply(learning_rate).loss))
        losses.append([*seen, _loss(trainable, batch)])
    for step, (whole, split) in enumerate(zip(*losses, strict=True)):
        require(
            math.isclose(whole, split, rel_tol=100 * tolerance, abs_tol=100 * tolerance),
            f"sample_independent is True, but splitting the batch in two changes the result from step {step + 1} on: "
            f"loss {split!r} instead of {whole!r}",
        )


def _check_inspection(trainable: Inspectable, batch: Batch, learning_rate: float, tolerance: float) -> None:
    trainable.init(0)
    trainable.without_randomness()
    start = _copy(trainable.parameters())
    number = sum(value.size for value in start.values())
    require(trainable.parameter_count() == number, f"parameter_count() is {trainable.parameter_count()}, not {number}")
    require(trainable.optimizer_family() in ("adam", "sgd", "other"), "optimizer_family() must be adam, sgd or other")
    grouped = [name for _, names in trainable.optimizer_groups() for name in names]
    require(sorted(grouped) == sorted(start), "optimizer_groups() must name every parameter once")
    grouped_count = sum(group.parameter_count for group, _ in trainable.optimizer_groups())
    require(grouped_count == number, f"optimizer_groups() count {grouped_count} parameters, not {number}")
    require(not any(np.any(g) for g in trainable.gradients().values()), "a new model must have no gradients")
    weight = 1.0 / trainable.count(batch)
    trainable.accumulate(batch, weight)
    once = _copy(trainable.gradients())
    require(set(once) <= set(start), f"gradients of unknown parameters: {sorted(set(once) - set(start))}")
    require(any(np.any(g) for g in once.values()), "accumulate must produce a gradient")
    trainable.accumulate(batch, weight)
    for name, gradient in trainable.gradients().items():
        require(
            np.allclose(
                gradient, 2 * once[name], rtol=tolerance, atol=tolerance * float(np.abs(gradient).max(initial=0))
            ),
            f"accumulate must add: the gradient of {name} did not double when the same batch was accumulated again",
        )
    trainable.apply(learning_rate)
    require(not any(np.any(g) for g in trainable.gradients().values()), "apply must clear the gradients")
    moved = trainable.parameters()
    require(any(not np.array_equal(moved[name], start[name]) for name in start), "apply must move the parameters")
    require(math.isfinite(trainable.raw_loss(batch)), f"raw_loss(batch) is {trainable.raw_loss(batch)}")
    counted = trainable.loss_count(batch)
    require(counted is None or counted > 0, f"loss_count(batch) is {counted}; it must be positive, or None for a mean")


class _Bomb:
    """A harmless example of an object that runs code when it is unpickled."""

    exploded = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _explode, ()


def _explode() -> None:
    _Bomb.exploded = True


def _train(trainable: Trainable, batch: Batch, learning_rate: float) -> None:
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    trainable.apply(learning_rate)


def _loss(trainable: Trainable, batch: Batch) -> float:
    total, count = trainable.evaluate(batch)
    return float(total) / count


def _copy(arrays: _Arrays) -> dict[str, npt.NDArray[Any]]:
    return {name: np.array(value) for name, value in arrays.items()}
