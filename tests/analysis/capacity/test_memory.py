from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.capacity.memory import capacity_finding, fit_line
from batchlab.core.experiment import TaskReference, build_experiment
from batchlab.core.record import CapacityResult, Outcome, Record
from batchlab.core.spec import CapacitySpec, Spec, Workload
from batchlab.storage.decisions import CapacityDecision, LimitKind

MIB = 2**20
TASK = TaskReference(kind="recipe", target="simulated")
EXPERIMENT = build_experiment({"name": "synthetic", "task": TASK, "sequence_length": 64})


def probe(micro: int, outcome: Outcome = Outcome.COMPLETED, **more: Any) -> tuple[Spec, Record]:
    spec = CapacitySpec(workload=Workload(task=TASK), micro_batch_size=micro)
    result = None
    if outcome is Outcome.COMPLETED:
        numbers = {"peak_bytes": (50 + 10 * micro) * MIB, **more}
        result = CapacityResult(micro_batch_size=micro, fits=True, **numbers)
    return spec, Record(run_id=f"m{micro}", outcome=outcome, result=result)


def find(records: list[tuple[Spec, Record]], needed: int, limit: int | None) -> Capacity | None:
    decided = CapacityDecision(searched_up_to=needed, limit_bytes=limit, limit_is=LimitKind.DEVICE_MEMORY)
    return capacity_finding(EXPERIMENT, records, decided)


def test_the_line_behind_the_peaks_is_found() -> None:
    found = find([probe(m) for m in (1, 2, 4, 8)], 8, 200 * MIB)
    assert found is not None
    assert found.line is not None
    assert found.line.intercept == pytest.approx(50 * MIB)
    assert found.line.slope == pytest.approx(10 * MIB)
    assert found.line.r_squared == pytest.approx(1.0)
    assert found.line.n == 4
    assert found.left_bytes == (200 - 130) * MIB
    assert (found.max_micro_batch_size, found.status, found.smallest_failed) == (8, "verified", None)
    assert found.limit_is is LimitKind.DEVICE_MEMORY
    assert found.searched_up_to == 8


def test_proved_needs_the_next_size_to_have_failed() -> None:
    full = Outcome.OUT_OF_MEMORY
    assert find([probe(6), probe(7, full)], 8, None).status == "proved"  # type: ignore[union-attr]
    assert find([probe(6), probe(8, full)], 8, None).status == "verified"  # type: ignore[union-attr]
    nothing = find([probe(1, full)], 8, None)
    assert nothing is not None
    assert (nothing.status, nothing.max_micro_batch_size, nothing.line) == ("none", None, None)


def test_a_size_above_a_failure_is_not_believed() -> None:
    found = find([probe(4), probe(8, Outcome.OUT_OF_MEMORY), probe(16)], 16, None)
    assert found is not None
    assert found.max_micro_batch_size == 4


@pytest.mark.parametrize("decided", [4, None])
def test_where_memory_varies_a_size_that_ran_without_room_to_rise_does_not_count(decided: int | None) -> None:
    decision = CapacityDecision(searched_up_to=16, max_micro_batch_size=decided, up_to=decided, varies=True)
    found = capacity_finding(EXPERIMENT, [probe(4), probe(8)], decision)
    assert found is not None
    assert (found.max_micro_batch_size, found.up_to) == (decided, decided)
    assert found.status == ("none" if decided is None else "verified")


def test_a_probe_that_failed_for_another_reason_says_nothing() -> None:
    found = find([probe(4), probe(5, Outcome.FAILED)], 8, None)
    assert found is not None
    assert (found.status, found.smallest_failed) == ("verified", None)
    assert find([probe(5, Outcome.FAILED)], 8, None) is None


def test_what_a_limit_bounds_counts() -> None:
    found = find([probe(1, peak_bytes=99 * MIB, measured="reserved", peak_in_use_bytes=60 * MIB)], 1, 100 * MIB)
    assert found is not None
    assert found.points[0].peak_bytes == 99 * MIB
    assert found.left_bytes == MIB


def test_nothing_probed_is_no_finding() -> None:
    assert find([], 8, None) is None


def test_two_points_are_no_line() -> None:
    assert fit_line([(1, 2), (2, 4)]) is None
    assert fit_line([(1, 2), (1, 4), (1, 6)]) is None


@given(
    st.floats(-1e6, 1e6),
    st.floats(-1e3, 1e3),
    st.lists(st.integers(-50, 50), min_size=3, max_size=8, unique=True),
)
def test_any_exact_line_is_recovered(intercept: float, slope: float, xs: list[int]) -> None:
    line = fit_line([(x, intercept + slope * x) for x in xs])
    assert line is not None
    assert line.intercept == pytest.approx(intercept, abs=1e-4)
    assert line.slope == pytest.approx(slope, abs=1e-4)


def test_r_squared_and_residual_of_a_known_scatter() -> None:
    # y = 0, 3, 3: slope 1.5, intercept .5; residuals -.5, 1, -.5; 1 - 1.5/6
    line = fit_line([(0, 0), (1, 3), (2, 3)])
    assert line is not None
    assert (line.slope, line.intercept) == pytest.approx((1.5, 0.5))
    assert line.r_squared == pytest.approx(0.75)
    assert line.largest_residual == pytest.approx(1.0)
    for residual, expected in zip(line.residuals, ((0, -0.5), (1, 1.0), (2, -0.5)), strict=True):
        assert residual == pytest.approx(expected)
