"""Findings with a calibration of four unequal devices that share batch 64."""

from __future__ import annotations

from dataclasses import replace

from batchlab.analysis.calibration import AllReduce, Calibration, StepPrediction, Worker
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Interval
from batchlab.core.batch import lay_out

SHARES, SPEEDS = (25, 20, 12, 7), (40_000.0, 32_000.0, 20_000.0, 12_000.0)


def calibrated(findings: Findings, shares: tuple[int, ...] = SHARES, seconds_per_byte: float = 1e-9) -> Findings:
    length = findings.experiment.sequence_length
    layout = lay_out(64, 16, data_parallel_size=4, sequence_length=length).model_copy(update={"shares": shares})
    found = Calibration(
        layout=layout,
        workers=tuple(
            Worker("card", layout.share(rank), Interval(speed, speed, speed, 5), 0.1, 0.01, 0.05)
            for rank, speed in enumerate(SPEEDS)
        ),
        all_reduce=AllReduce(1e-3, seconds_per_byte, 0.02, (1024, 2**20), 9),
        gradient_bytes=2**20,
        step=StepPrediction(0.09, 0.01, 0.001, 0.02, 0.001),
        alone_seconds=(0.2, 0.25, 0.4, 0.6),
    )
    return replace(findings, calibrations=(found,))
