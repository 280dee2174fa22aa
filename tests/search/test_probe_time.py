from __future__ import annotations

import pytest

from batchlab.core.batch import Unit
from batchlab.core.record import TaskInfo
from batchlab.search.probe_time import MOST_PROBES, assumed_probe_time, measured_probe_time

TASK_INFO = TaskInfo(
    unit=Unit.TOKENS,
    sequence_length=100,
    train_samples=1000,
    valid_samples=100,
    parameter_count=1_000_000,
    optimizer_family="adam",
    data_source="text",
    data_digest="d",
    device="cpu",
)


def test_a_measured_time_has_no_range_and_grows_with_size_and_micro_batches() -> None:
    time = measured_probe_time(0.01)
    assert time.assumed is None
    found = time.verifying(10, accumulation=2)
    assert found.low == found.high == pytest.approx(0.01 * 10 * (3 * 2 + 0.4))
    assert time.verifying(20, 2).high == pytest.approx(2 * found.high)
    assert time.verifying(10, 1).high < found.high


def test_a_search_takes_from_two_probes_to_the_most() -> None:
    time = measured_probe_time(1.0)
    one = time.verifying(8, 2).low
    search = time.search(8, 2)
    assert one < search.low < 2 * one  # the first probe is smaller
    assert search.high == pytest.approx(search.low + (MOST_PROBES - 2) * one)


def test_assumed_times_count_operations_and_cores() -> None:
    one, four = (assumed_probe_time(TASK_INFO, cores) for cores in (1, 4))
    assert one is not None
    assert four is not None
    assert one.assumed is not None
    assert one.per_pass.low * one.assumed.high == pytest.approx(6 * 1_000_000 * 100)
    assert one.per_pass.high * one.assumed.low == pytest.approx(6 * 1_000_000 * 100)
    assert four.per_pass.high == pytest.approx(one.per_pass.high / 4)
    card = assumed_probe_time(TASK_INFO.model_copy(update={"device": "cuda:1"}), 4)
    assert card is not None
    assert card.per_pass.high < one.per_pass.high


@pytest.mark.parametrize("what", [{"unit": Unit.SAMPLES}, {"parameter_count": None}, {"device": "simulated"}])
def test_what_cannot_be_counted_is_not_estimated(what: dict[str, object]) -> None:
    assert assumed_probe_time(TASK_INFO.model_copy(update=what), 2) is None
