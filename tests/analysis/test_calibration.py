"""The step of devices that share a batch, from known parts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.analysis.calibration import (
    AllReduce,
    Bound,
    Worker,
    calibration,
    calibrations,
    exposed_seconds,
    fit_all_reduce,
)
from batchlab.analysis.values import Interval
from batchlab.core.batch import BatchLayout, lay_out
from batchlab.core.experiment import TaskReference
from batchlab.core.record import (
    AllReduceResult,
    Outcome,
    Record,
    Result,
    SumTiming,
    WorkerDevice,
    WorkersResult,
    WorkerTiming,
)
from batchlab.core.spec import AllReduceSpec, Spec, WorkersSpec, Workload, run_id

WORKLOAD = Workload(task=TaskReference(kind="recipe", target="simulated"))
SIZES = (1_000, 100_000, 10_000_000)


def sums(latency: float, per_byte: float, parts: tuple[int, ...] = (10_000_000,), devices: int = 2) -> AllReduceResult:
    return AllReduceResult(
        devices=(WorkerDevice(name="card", memory_bytes=None),) * devices,
        sums=tuple(SumTiming(size_bytes=size, seconds=(latency + per_byte * size,) * 3) for size in SIZES),
        parts=parts,
        agreement_seconds=0.001,
    )


def timing(share: int, seconds: float, held: float | None = None, backward: float = 0.0) -> WorkerTiming:
    return WorkerTiming(
        share=share,
        step_seconds=(seconds * 0.9, seconds, seconds * 1.2),
        held_step_seconds=(seconds if held is None else held,),
        pass_seconds=backward + 0.01,
        forward_seconds=0.01,
    )


def record(spec: Spec, result: Result) -> tuple[Spec, Record]:
    return spec, Record(run_id=run_id(spec), outcome=Outcome.COMPLETED, result=result)


@pytest.mark.parametrize(("latency", "per_byte"), [(1e-3, 1e-9), (0.0, 1e-9), (1e-3, 0.0), (5e-5, 2e-11)])
def test_a_line_through_sums_gives_back_latency_and_bandwidth(latency: float, per_byte: float) -> None:
    fit = fit_all_reduce(sums(latency, per_byte))
    assert fit.latency_seconds == pytest.approx(latency, abs=1e-9)
    assert fit.seconds_per_byte == pytest.approx(per_byte, rel=1e-6, abs=1e-18)
    assert fit.residual < 1e-6
    assert fit.repeats == 3


def test_the_residual_is_relative() -> None:
    timed = sums(1e-3, 0.0)
    bent = timed.model_copy(
        update={"sums": (*timed.sums[:2], SumTiming(size_bytes=SIZES[2], seconds=(0.5e-3,))), "parts": (1,)}
    )
    fit = fit_all_reduce(bent)
    assert 0.2 < fit.residual < 0.5


def worker(step: float, backward: float) -> Worker:
    return Worker("card", 8, Interval(8 / step), step, 0.0, backward)


LINK = AllReduce(0.001, 1e-9, 0.0, SIZES, 3)


@pytest.mark.parametrize(
    ("parts", "backward", "left"),
    [
        ((9_000_000,), 1.0, 0.010),  # one sum begins when the backward pass has ended
        ((9_000_000, 9_000_000), 1.0, 0.010),  # the first is hidden
        ((9_000_000, 9_000_000), 0.0, 0.020),  # nothing to hide behind
        ((9_000_000,) * 4, 0.004, 0.037),  # the first begins after a quarter, the link is busy from then on
    ],
)
def test_what_the_backward_pass_hides(parts: tuple[int, ...], backward: float, left: float) -> None:
    assert exposed_seconds(parts, LINK, [worker(2.0, backward), worker(0.5, 0.0)]) == pytest.approx(left)


def test_a_device_whose_last_pass_is_short_keeps_the_others_sums_waiting() -> None:
    """One that accumulates is as late, and its last backward pass begins later."""
    left = exposed_seconds((9_000_000,) * 4, LINK, [worker(2.0, 0.4), worker(2.0, 0.004)])
    assert left == pytest.approx(0.037)


@settings(deadline=None)
@given(parts=st.lists(st.integers(1, 10**8), min_size=1, max_size=20), backward=st.floats(0.0, 10.0))
def test_between_the_last_sum_and_all_sums_is_left(parts: list[int], backward: float) -> None:
    left = exposed_seconds(parts, LINK, [worker(20.0, backward)])
    assert LINK.seconds(parts[-1]) - 1e-9 <= left <= sum(map(LINK.seconds, parts)) + 1e-9


def test_the_device_that_takes_longest_decides() -> None:
    layout = BatchLayout(global_batch_size=40, micro_batch_size=20, data_parallel_size=2, shares=(30, 10))
    timed = WorkersResult(workers=(timing(30, 0.2), timing(10, 0.25, held=0.24)))
    alone = WorkersResult(workers=(timing(40, 0.25), timing(40, 1.0)))
    found = calibration(layout, timed, sums(0.001, 1e-9), alone)
    assert found.step.compute_seconds == pytest.approx(0.24)
    assert found.step.data_seconds == pytest.approx(0.01)
    assert found.step.exposed_seconds == pytest.approx(0.011)
    assert found.step.synchronisation_seconds == pytest.approx(0.012)
    assert found.step.seconds == pytest.approx(0.262)
    assert found.tokens_per_second == pytest.approx(40 / 0.262)
    assert found.speedup == pytest.approx(0.25 / 0.262)
    assert found.speedup_over_mean == pytest.approx(40 / 0.262 / ((160 + 40) / 2))
    assert found.workers[0].tokens_per_second.value == pytest.approx(150)
    assert found.workers[0].tokens_per_second.low == pytest.approx(125)
    assert found.workers[0].tokens_per_second.n == 3


@pytest.mark.parametrize(
    ("step", "held", "latency", "bound"),
    [
        (1.0, 1.0, 0.1, Bound.COMPUTE),
        (1.0, 0.3, 0.1, Bound.DATA),
        (1.0, 1.0, 2.0, Bound.SYNCHRONISATION),
        (1.0, 1.1, 0.1, Bound.COMPUTE),  # samples prepared ahead by chance take no negative time
    ],
)
def test_what_takes_most_of_a_step_bounds_it(step: float, held: float, latency: float, bound: Bound) -> None:
    workers = WorkersResult(workers=(timing(8, step, held), timing(8, step, held)))
    found = calibration(lay_out(16, 8, data_parallel_size=2), workers, sums(latency, 0.0), workers)
    assert found.step.bound is bound
    assert min(found.step.parts.values()) >= 0.0


@pytest.mark.parametrize(
    ("equal_seconds", "unequal_seconds", "shares"),
    [
        ((0.5, 1.0), (0.98, 0.98), ()),  # hardly shorter
        ((0.5, 1.0), (0.8, 0.8), (24, 8)),
        ((0.9, 1.0), (0.8, 0.8), ()),  # the spread of a device is larger than the difference between the two
    ],
)
def test_unequal_shares_must_be_worth_it(
    equal_seconds: tuple[float, float], unequal_seconds: tuple[float, float], shares: tuple[int, ...]
) -> None:
    equal = lay_out(32, 16, data_parallel_size=2)
    unequal = equal.model_copy(update={"shares": (24, 8)})
    whole = lay_out(64, 32, data_parallel_size=2)
    no_time = sums(0.0, 0.0).model_copy(update={"agreement_seconds": 0.0})
    records = [
        record(AllReduceSpec(workload=WORKLOAD, data_parallel_size=2), no_time),
        *(
            record(
                WorkersSpec(workload=WORKLOAD, layout=layout),
                WorkersResult(workers=tuple(timing(layout.share(rank), seconds[rank]) for rank in range(2))),
            )
            for layout, seconds in ((equal, equal_seconds), (unequal, unequal_seconds), (whole, (2.0, 2.0)))
        ),
    ]
    [found] = calibrations(records)
    assert found.layout.shares == shares
    assert found.equal_layout == equal
    assert found.alone_seconds == (2.0, 2.0)


def test_there_is_none_before_all_were_timed() -> None:
    timed = WorkersResult(workers=(timing(8, 1.0), timing(8, 1.0)))
    shared, whole = (
        record(WorkersSpec(workload=WORKLOAD, layout=lay_out(size, 16, data_parallel_size=2)), timed)
        for size in (16, 32)
    )
    reduced = record(AllReduceSpec(workload=WORKLOAD, data_parallel_size=2), sums(0.0, 0.0))
    assert calibrations([shared, whole]) == calibrations([shared, reduced]) == calibrations([whole, reduced]) == ()
    assert len(calibrations([shared, whole, reduced])) == 1
