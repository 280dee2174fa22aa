"""Contract test for Engine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from batchlab.core.protocols import Engine, Finished
from batchlab.core.record import Record
from batchlab.core.spec import Spec, run_id
from batchlab.testing.requirement import require


def check_engine(make_engine: Callable[[], Engine], specs: Sequence[Spec], *, seconds: float = 60.0) -> list[Record]:
    """Check that each submitted spec yields exactly one record of its own and, submitted again, the same record.

    Also checks that an engine can be closed twice. `seconds` is the time limit for executing all specs. Returns the
    records in the order of the specs. Raises AssertionError for the first violated requirement.
    """
    wanted = [run_id(spec) for spec in specs]
    require(len(set(wanted)) == len(wanted) > 0, "the contract test needs at least one spec, and no duplicates")
    engine = make_engine()
    try:
        require(engine.wait(0.0) == [], "an engine without work must report nothing")
        first = _execute(engine, specs, seconds)
        again = _execute(engine, specs, seconds)
    finally:
        engine.close()
        engine.close()
    for name in wanted:
        require(first[name] == again[name], f"{name} gave another record when it was submitted again")
    return [first[name] for name in wanted]


def _execute(engine: Engine, specs: Sequence[Spec], seconds: float) -> dict[str, Record]:
    for spec in specs:
        engine.submit(spec, exclusive=spec.kind in ("capacity", "throughput"))
    records: dict[str, Record] = {}
    ended: Counter[str] = Counter()
    expected = {run_id(spec) for spec in specs}
    deadline = time.monotonic() + seconds
    while expected - records.keys():
        require(time.monotonic() < deadline, f"no record after {seconds:g} s for {sorted(expected - records.keys())}")
        for event in engine.wait(1.0):
            if isinstance(event, Finished):
                name = run_id(event.spec)
                require(event.record.run_id == name, f"the record of {name} is named {event.record.run_id}")
                records[name] = event.record
                ended[name] += 1
    for event in engine.wait(0.0):
        if isinstance(event, Finished):
            ended[run_id(event.spec)] += 1
    require(set(ended) == expected, f"records of specs that were not submitted: {sorted(set(ended) - expected)}")
    require(max(ended.values()) == 1, f"specs that ended more than once: {[n for n in ended if ended[n] > 1]}")
    return records
