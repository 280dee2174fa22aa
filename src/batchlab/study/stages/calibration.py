"""Timings of the devices that are to share a batch, and of the sums between them."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from batchlab.analysis.calibration import Calibration, calibrations
from batchlab.core.batch import BatchLayout
from batchlab.core.record import AllReduceResult, Record, WorkerDevice, WorkersResult
from batchlab.core.spec import AllReduceSpec, OptimizerSettings, Spec, WorkersSpec
from batchlab.search.shares import ShareSearch, most_samples, whole_batch_each
from batchlab.study.session import Session, run_alone
from batchlab.study.stages.failure import StageFailed
from batchlab.words.calibration import ALL_REDUCE, describe_sum, workers_title


def calibration_stage(
    session: Session, layout: BatchLayout, fits: Callable[[WorkerDevice], int | None], *, accumulates: bool
) -> Calibration:
    """The devices of this layout at the shares that suit them.

    fits: the largest micro-batch of a device; None: unknown.

    Raises StageFailed where a measurement fails, InputError where the devices cannot share the batch.
    """
    devices = layout.data_parallel_size
    session.view.stage(ALL_REDUCE)
    spec = AllReduceSpec(
        workload=session.study.workload,
        data_parallel_size=devices,
        optimizer=OptimizerSettings(config=session.study.experiment.optimizer),
        device=session.device,
    )
    sums = _measured(session, spec).result
    assert isinstance(sums, AllReduceResult)
    for timing in sums.sums:
        session.view.say(f"   {describe_sum(timing)}")
    fitting = [fits(each) for each in sums.devices]
    search = ShareSearch(layout, most_samples(layout, fitting, accumulates=accumulates))
    session.view.stage(workers_title((layout.global_batch_size,) * devices))
    _speeds(session, whole_batch_each(layout, fitting))
    while layouts := search.ask():
        speeds = []
        for each in layouts:
            session.view.stage(workers_title(tuple(map(each.share, range(devices)))))
            speeds.append(_speeds(session, each))
        search.tell(layouts, speeds)
    return next(
        found
        for found in calibrations(session.study.store.records())
        if (found.layout.data_parallel_size, found.layout.global_batch_size) == (devices, layout.global_batch_size)
    )


def _speeds(session: Session, layout: BatchLayout) -> list[float]:
    """Samples per second of each device."""
    spec = WorkersSpec(
        workload=session.study.workload,
        layout=layout,
        optimizer=session.optimizer(layout.global_batch_size),
        device=session.device,
    )
    timed = _measured(session, spec).result
    assert isinstance(timed, WorkersResult)
    return [worker.share / statistics.median(worker.step_seconds) for worker in timed.workers]


def _measured(session: Session, spec: Spec) -> Record:
    """The record of a measurement that completed."""
    [record] = run_alone(session, [spec])
    if not isinstance(record.result, AllReduceResult | WorkersResult):
        raise StageFailed(f"The devices could not be timed ({record.outcome.label}): {record.reason}")
    return record
