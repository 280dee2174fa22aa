"""In which processes sizes are probed, and how far without a limit, on the simulated device."""

from __future__ import annotations

from typing import Any

import pytest

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.core.experiment import build_experiment
from batchlab.core.protocols import OutOfMemory, RunContext, RunResult
from batchlab.core.record import Record
from batchlab.core.settings import merge
from batchlab.core.spec import CapacitySpec, Spec
from batchlab.engines import inline
from batchlab.engines.attempt import LiveRun, run_attempt
from batchlab.max_batch_size import scratch_session
from batchlab.runs import execute as runs
from batchlab.search.probe_time import VERIFYING_STEPS
from batchlab.simulated.machine import simulation
from batchlab.study.stages.capacity import capacity_stage
from batchlab.study.stages.capacity_request import CapacityRequest
from batchlab.study.stages.effort import USEFUL
from batchlab.study.task_source import resolve_task

MACHINE = simulation({}).machine


def new(spec: Spec) -> bool:
    return isinstance(spec, CapacitySpec) and spec.new_process


def found(request: CapacityRequest, **model: Any) -> tuple[Capacity, list[tuple[CapacitySpec, Record]]]:
    """The answer without headroom, and the records of the probes."""
    asked = build_experiment(merge(resolve_task("simulated"), {"model": model, "device": {"headroom": "0"}}))
    with scratch_session(asked) as session:
        capacity = capacity_stage(session, request, sample_independent=True)
        records = session.study.store.records()
    return capacity, [(spec, record) for spec, record in records if isinstance(spec, CapacitySpec)]


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes are recorded as of the kind of process that an engine over processes would run them in."""

    def attempt(run: LiveRun) -> Record:
        return run_attempt(run, process="new" if new(run.spec) else "forked")

    monkeypatch.setattr(inline, "run_attempt", attempt)


@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize("prove", [False, True])
def test_the_size_that_is_called_verified_ran_in_a_new_process_and_no_other_did(prove: bool) -> None:
    capacity, probes = found(CapacityRequest(prove=prove))
    assert capacity.max_micro_batch_size == MACHINE.max_micro_batch_size()
    assert capacity.status == ("proved" if prove else "verified")
    assert capacity.forked_only == ()
    by_process: dict[str | None, list[int]] = {record.process: [] for _, record in probes}
    for spec, record in probes:
        by_process[record.process].append(spec.micro_batch_size)
        assert spec.steps == VERIFYING_STEPS or record.process == "forked"
    assert by_process["new"] == [capacity.max_micro_batch_size]
    largest = capacity.max_micro_batch_size or 0
    assert max(by_process["forked"]) == (largest + 1 if prove else largest // 2)


@pytest.mark.usefixtures("forking")
def test_where_a_new_process_holds_less_a_smaller_size_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """So much less that even the size of the calibration, which had fit in a forked process, does not fit."""
    real, most = runs.execute, 400

    def execute(spec: Spec, context: RunContext) -> RunResult:
        if isinstance(spec, CapacitySpec) and spec.new_process and spec.micro_batch_size > most:
            raise OutOfMemory("no more")
        return real(spec, context)

    monkeypatch.setattr(runs, "execute", execute)
    capacity, probes = found(CapacityRequest())
    half = MACHINE.max_micro_batch_size() // 2
    assert capacity.status == "verified"
    assert 0.97 * most <= (capacity.max_micro_batch_size or 0) <= most
    assert capacity.forked_only == (half,)
    assert (half, "forked", "completed") in outcomes(probes)
    assert (half, "new", "out_of_memory") in outcomes(probes)
    assert (capacity.max_micro_batch_size, "new", "completed") in outcomes(probes)
    assert len(probes) <= 30


def outcomes(probes: list[tuple[CapacitySpec, Record]]) -> set[tuple[int | None, str | None, str]]:
    return {(spec.micro_batch_size, record.process, record.outcome.value) for spec, record in probes}


@pytest.mark.usefixtures("forking")
def test_without_a_limit_a_useful_size_is_verified_where_the_largest_takes_minutes() -> None:
    capacity, probes = found(CapacityRequest(), seconds_per_sample=1.0)
    slow = capacity.too_slow
    assert slow is not None
    assert slow.predicted == MACHINE.max_micro_batch_size() > 8 * USEFUL * slow.knee
    assert slow.seconds > 60.0
    assert slow.knee == MACHINE.knee_samples
    assert capacity.status == "verified"
    assert capacity.max_micro_batch_size == USEFUL * slow.knee
    assert max(spec.micro_batch_size for spec, _ in probes) == USEFUL * slow.knee
    assert {record.process for spec, record in probes if spec.micro_batch_size == USEFUL * slow.knee} == {"new"}


@pytest.mark.parametrize(
    ("request_", "model"),
    [
        (CapacityRequest(verify_largest=True), {"seconds_per_sample": 1.0}),
        (CapacityRequest(prove=True), {"seconds_per_sample": 1.0}),
        (CapacityRequest(), {}),
    ],
)
def test_the_largest_runs_where_that_is_asked_for_or_quick(request_: CapacityRequest, model: dict[str, float]) -> None:
    capacity, _ = found(request_, **model)
    assert capacity.too_slow is None
    assert capacity.max_micro_batch_size == MACHINE.max_micro_batch_size()
