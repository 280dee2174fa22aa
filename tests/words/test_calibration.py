"""Devices that share a batch, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from batchlab.analysis.calibration import AllReduce, Calibration, StepPrediction, Worker
from batchlab.analysis.values import Interval
from batchlab.core.batch import Unit, lay_out
from batchlab.words.calibration import calibration_lines, describe_bound, where_the_plan_is

WORKER = Worker("card", 32, Interval(10_000, 9_000, 11_000, 5), 0.0032, 0.0, 0.002)
FOUND = Calibration(
    layout=lay_out(64, 32, data_parallel_size=2),
    workers=(WORKER, WORKER),
    all_reduce=AllReduce(2e-4, 1 / 2**30, 0.034, (1024, 2**20), 9),
    gradient_bytes=4 * 2**20,
    step=StepPrediction(0.0032, 0.0, 0.0005, 0.0007, 0.0001),
    alone_seconds=(0.006, 0.009),
)


def test_lines() -> None:
    assert calibration_lines(FOUND, Unit.SAMPLES) == [
        "worker-0    card: 10,000 samples/s [9,000, 11,000], n = 5; takes 32 of 64 samples",
        "worker-1    card: 10,000 samples/s [9,000, 11,000], n = 5; takes 32 of 64 samples",
        "all-reduce  0.2 ms + bytes ÷ 1.00 GiB/s; it misses the times of 2 sizes from 1 KiB to 1.0 MiB by 3.4 % (root "
        "mean square), n = 9 each",
        "step        4 ms predicted: 3.2 ms of computing, 0 ms of preparing samples, 0.8 ms of communication (0.5 ms "
        "more is hidden behind the backward pass)",
        "speed-up    1.50 × the fastest device with the whole batch, 1.80 × the mean one: 16,000 samples/s",
        "Compute-bound: 80 % of a step (3.2 ms of 4 ms) is computing, so 2 devices are worth their speed but for the "
        "20 % that communication takes.",
    ]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (StepPrediction(0.001, 0.002, 0.0, 0.0, 0.0), "Data-bound: for 67 % of a step (2 ms of 3 ms) the devices wait"),
        (
            StepPrediction(0.001, 0.0, 0.0, 0.002, 0.001),
            "Synchronisation-bound: 75 % of a step (3 ms of 4 ms) is the sum of 4.0 MiB of gradients over 2 devices",
        ),
    ],
)
def test_what_bounds_a_step(step: StepPrediction, said: str) -> None:
    assert describe_bound(replace(FOUND, step=step)).startswith(said)


def test_devices_that_are_slower_together() -> None:
    *_, last = calibration_lines(replace(FOUND, alone_seconds=(0.009, 0.003)), Unit.SAMPLES)
    assert last == "worker-1 alone would take 3 ms for the same step: train on it."


def test_times_beside_other_programs_are_called_unreliable() -> None:
    *_, last = calibration_lines(replace(FOUND, other_load=0.4), Unit.SAMPLES)
    assert last.startswith("Other programs used 40 % of the processor meanwhile")
    assert calibration_lines(replace(FOUND, other_load=0.05), Unit.SAMPLES) == calibration_lines(FOUND, Unit.SAMPLES)


@pytest.mark.parametrize(("devices", "option"), [(2, ""), (1, " --devices 2")])
def test_the_command_for_the_plan(devices: int, option: str) -> None:
    line = where_the_plan_is(Path("studies/my study"), FOUND, devices)
    assert line == f"plan        batchlab plan 'studies/my study'{option} --batch-size 64"
