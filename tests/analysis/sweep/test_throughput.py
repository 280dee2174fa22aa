from __future__ import annotations

from batchlab.analysis.sweep.throughput import throughput_finding
from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.record import Outcome, Record, ThroughputResult
from batchlab.core.spec import Spec, ThroughputSpec, Workload


def timed(size: int, *blocks: float, outcome: Outcome = Outcome.COMPLETED) -> tuple[Spec, Record]:
    layout = BatchLayout(global_batch_size=size, micro_batch_size=size)
    spec = ThroughputSpec(workload=Workload(task=TaskReference(kind="recipe", target="simulated")), layout=layout)
    result = ThroughputResult(
        tokens_per_second=blocks[0], tokens_per_second_blocks=blocks, step_seconds=size / blocks[0], warmup_seconds=0.1
    )
    return spec, Record(run_id=f"b{size}", outcome=outcome, result=result)


def test_median_and_spread_of_the_blocks() -> None:
    found = throughput_finding([timed(4, 90, 110, 100, 30, 101)])
    assert found is not None
    speed = found.points[0].tokens_per_second
    assert (speed.value, speed.low, speed.high, speed.n) == (100, 30, 110, 5)
    assert found.at(4) is found.points[0]
    assert found.at(8) is None


def test_the_knee_is_the_smallest_size_within_a_tenth_of_the_fastest() -> None:
    found = throughput_finding([timed(64, 100), timed(4, 50), timed(16, 91), timed(8, 89), timed(32, 95)])
    assert found is not None
    assert (found.fastest, found.knee) == (64, 16)
    assert [p.layout.global_batch_size for p in found.points] == [4, 8, 16, 32, 64]
    assert found.falls_off == ()


def test_a_cliff_is_named() -> None:
    """The public sweep in which batch 256 took five times as long as 128: it had fallen back to host memory."""
    hours = {1: 7.22, 8: 3.06, 32: 2.11, 64: 1.67, 128: 1.43, 256: 7.56}
    found = throughput_finding([timed(size, 327.68e6 / (h * 3600)) for size, h in hours.items()])
    assert found is not None
    assert (found.fastest, found.knee, found.falls_off) == (128, 128, (256,))


def test_failed_measurements_are_left_out() -> None:
    assert throughput_finding([timed(4, 10, outcome=Outcome.OUT_OF_MEMORY)]) is None
    assert throughput_finding([]) is None
