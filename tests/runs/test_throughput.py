"""How long an accelerator is timed, on a device whose clock is scripted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.nvml import CardState
from batchlab.core.protocols import MemoryReading, OutOfMemory, RunContext, StepStats, Trainable
from batchlab.core.record import ThroughputResult
from batchlab.core.spec import DeviceSettings, ThroughputSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.throughput import TIME_LIMIT, measure, settled

LAYOUT = BatchLayout(global_batch_size=8, micro_batch_size=8)


class Device:
    """Steps take as long as `speed` says after so many seconds."""

    sample_independent = True

    def __init__(self, speed: Callable[[float], float], processes: int | None = 1, full: bool = False) -> None:
        self.seconds, self.steps = 0.0, 0
        self._speed, self._processes, self._full = speed, processes, full

    def init(self, seed: int) -> None: ...

    def count(self, batch: object) -> float:
        return 8.0

    def accumulate(self, batch: object, weight: float) -> None: ...

    def apply(self, learning_rate: float) -> StepStats:
        self.seconds += self._speed(self.seconds)
        self.steps += 1
        return StepStats(1.0, 1.0, 0.0)

    def synchronize(self) -> float:
        return self.seconds

    def memory(self) -> MemoryReading:
        return MemoryReading(1, 2, 3, 4, "reserved")

    def training_flops(self, batch: object) -> float:
        if self._full:
            raise OutOfMemory("full")
        return 8 * 3e9

    def peak_flops(self) -> float:
        return 1e12

    def card_state(self) -> CardState:
        return CardState(clock_mhz=1200, utilization=0.25, processes=self._processes)


def measured(device: Device, name: str = "cuda") -> ThroughputResult:
    spec = ThroughputSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="simulated")),
        layout=LAYOUT,
        device=DeviceSettings(name=name),
    )
    stream = cast("SampleStream", SimpleNamespace(batch=lambda start, stop: None))
    context = cast("RunContext", SimpleNamespace(stop_requested=lambda: False, progress=lambda *_: None))
    result = measure(cast("Trainable", device), stream, spec, context).result
    assert isinstance(result, ThroughputResult)
    return result


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchlab.runs.throughput.time.sleep", lambda seconds: None)


def test_a_steady_device_is_timed_for_twice_the_blocks() -> None:
    device = Device(lambda _: 0.03)
    found = measured(device)
    assert found.stable
    assert found.tokens_per_second == pytest.approx(8 / 0.03)
    assert len(found.tokens_per_second_blocks) == 5
    assert device.seconds == pytest.approx(10 * 0.3, rel=0.2)


def test_a_device_that_slows_down_is_timed_until_it_does_not() -> None:
    """Its steps take 40 % longer once it is warm, after 20 seconds; the first blocks are no part of the result."""
    device = Device(lambda seconds: 0.03 * (1 + 0.4 * min(1.0, seconds / 20)))
    found = measured(device)
    assert found.stable
    assert found.tokens_per_second == pytest.approx(8 / 0.042, rel=0.01)


def test_one_that_never_settles_ends_at_the_time_limit_and_says_so() -> None:
    device = Device(lambda seconds: 0.03 * (1 + seconds))
    found = measured(device)
    assert found.stable is False
    assert TIME_LIMIT < device.seconds < 3 * TIME_LIMIT


def test_a_processor_is_timed_for_its_blocks_only() -> None:
    device = Device(lambda seconds: 0.03 * (1 + seconds))
    found = measured(device, "cpu")
    assert found.stable is found.issuing_share is None
    assert len(found.tokens_per_second_blocks) == 5


@pytest.mark.parametrize(("processes", "load"), [(1, 0.0), (3, 0.25), (None, None)])
def test_what_others_use_is_looked_for_where_there_are_others(processes: int | None, load: float | None) -> None:
    found = measured(Device(lambda _: 0.03, processes))
    assert found.other_load == load
    assert found.clock_mhz == 1200


def test_operations_per_token_and_the_peak() -> None:
    found = measured(Device(lambda _: 0.03))
    assert (found.flops_per_token, found.peak_flops) == (3e9, 1e12)
    assert measured(Device(lambda _: 0.03, full=True)).flops_per_token is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([1.0] * 9, False), ([1.0] * 10, True), ([1.0] * 5 + [1.02] * 5, False), ([1.0] * 5 + [1.009] * 5, True)],
)
def test_settled_compares_medians(seconds: list[float], expected: bool) -> None:
    assert settled(seconds, 5) is expected
