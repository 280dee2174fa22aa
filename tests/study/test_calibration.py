"""`batchlab calibrate` on simulated devices whose truth is known: predictions, shares, resuming, wrong requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchlab.analysis.calibration import Calibration
from batchlab.cli.app import run
from batchlab.core.batch import BatchLayout
from batchlab.core.record import ThroughputResult
from batchlab.core.spec import ThroughputSpec
from batchlab.plan.train_spec import train_spec
from batchlab.simulated.machine import simulation
from batchlab.storage.store import Store
from batchlab.study.calibration import run_calibration
from batchlab.study.documents import read_findings
from batchlab.study.engines import engine_factory
from batchlab.study.open_study import reopen_study
from batchlab.study.progress import SilentView
from batchlab.study.session import Session, run_alone
from batchlab.study.training import read_plan

SMALL = ("--set", "model.dimensions=4", "--set", "model.samples=2048")
STUDY = ("--batch-sizes", "32,64", "--learning-rates", "0.8,1.4", "--seeds", "1", "--token-budget", "4096")


def measured(folder: Path, *sizes: int, **machine: Any) -> Path:
    """A study of so many batch sizes that knows its capacity and throughput."""
    values = [word for name, value in machine.items() for word in ("--set", f"model.{name}={value}")]
    batches = ("--batch-sizes", ",".join(map(str, sizes)))
    assert run(["throughput", "simulated", "--out", str(folder), *batches, *SMALL, *values]) == 0
    return folder


def calibrated(folder: Path, **asked: int) -> Calibration:
    return run_calibration(folder, engine_factory(Store.open(folder).experiment), SilentView(), **asked)


def run_together(folder: Path, layout: BatchLayout) -> float:
    """Seconds of a step of this layout on devices that communicate."""
    study = reopen_study(folder)
    session = Session(study, engine_factory(study.experiment), SilentView())
    spec = ThroughputSpec(
        workload=study.workload,
        layout=layout,
        repeats=5,
        block_seconds=1.0,
        optimizer=session.optimizer(layout.global_batch_size),
        device=session.device,
    )
    [record] = run_alone(session, [spec])
    assert isinstance(record.result, ThroughputResult)
    return record.result.step_seconds


FROZEN: tuple[tuple[int, dict[str, Any]], ...] = (
    (
        256,
        {
            "worker_speeds": "1,0.8,0.5,0.3",
            "all_reduce_seconds": 2e-4,
            "link_bytes_per_second": 1e9,
            "gradient_bytes": 4_000_000,
            "gradient_parts": 1,
            "timing_noise": 0.05,
        },
    ),
    (
        128,
        {
            "worker_speeds": "1,0.9,0.6,0.25",
            "all_reduce_seconds": 5e-4,
            "link_bytes_per_second": 2e8,
            "gradient_bytes": 2_000_000,
            "gradient_parts": 4,
            "timing_noise": 0.1,
        },
    ),
    (
        512,
        {
            "worker_speeds": "1,1,1,0.4",
            "all_reduce_seconds": 5e-5,
            "link_bytes_per_second": 1e10,
            "gradient_bytes": 100_000_000,
            "gradient_parts": 8,
            "timing_noise": 0.05,
        },
    ),
    (
        64,
        {
            "worker_speeds": "0.7,0.5,0.4,0.3",
            "worker_memories": "1,1,0.07,1",
            "all_reduce_seconds": 1e-3,
            "link_bytes_per_second": 5e7,
            "gradient_bytes": 1_000_000,
            "gradient_parts": 2,
            "timing_noise": 0.1,
        },
    ),
)
"""(batch, devices and link) of four unequal devices, chosen before any of them was run (docs/log.md)."""

HELD_OUT: tuple[tuple[int, dict[str, Any]], ...] = (
    (
        320,
        {
            "worker_speeds": "0.45,1,0.7,0.9",
            "all_reduce_seconds": 3e-4,
            "link_bytes_per_second": 3e9,
            "gradient_bytes": 30_000_000,
            "gradient_parts": 6,
            "timing_noise": 0.08,
        },
    ),
    (
        1024,
        {
            "worker_speeds": "0.2,0.9,0.6,1",
            "all_reduce_seconds": 1e-4,
            "link_bytes_per_second": 5e9,
            "gradient_bytes": 200_000_000,
            "gradient_parts": 12,
            "timing_noise": 0.06,
        },
    ),
    (
        96,
        {
            "worker_speeds": "0.8,0.35,0.55,0.6",
            "worker_memories": "1,0.075,1,1",
            "all_reduce_seconds": 2e-3,
            "link_bytes_per_second": 2e9,
            "gradient_bytes": 8_000_000,
            "gradient_parts": 3,
            "timing_noise": 0.1,
        },
    ),
)
"""Written when the model had been changed after FROZEN was run, and before these were."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize(("batch", "machine"), [*FROZEN, *HELD_OUT])
def test_the_predicted_step_is_within_a_tenth_of_the_truth(
    batch: int, machine: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    folder = measured(tmp_path / "study", batch, timing_seed=seed, **machine)
    found = calibrated(folder, devices=4)
    assert found.step.seconds == pytest.approx(run_together(folder, found.layout), rel=0.1)
    assert found.step.seconds == pytest.approx(simulation(machine).machine.step_seconds(found.layout), rel=0.1)
    shares = [found.layout.share(rank) for rank in range(4)]
    assert sum(shares) == batch
    true = simulation(machine).machine
    assert all(max(found.layout.micro_batch_sizes(rank)) <= true.max_micro_batch_size(worker=rank) for rank in range(4))


def test_what_is_on_disk_is_not_measured_again(tmp_path: Path) -> None:
    folder = measured(tmp_path / "study", 64, worker_speeds="1,0.5")
    before = calibrated(folder, devices=2)
    files = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("record.json")}
    assert calibrated(folder, devices=2) == before
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("record.json")} == files


def test_a_plan_has_the_devices_and_trains_with_their_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    speeds = ("--set", 'model.worker_speeds="1,0.8,0.5,0.3"', "--set", "model.knee_samples=1")
    assert run(["study", "simulated", "--out", str(folder), "--devices", "4", *STUDY, *SMALL, *speeds]) == 0
    before = read_plan(folder / "training_plan.json")
    assert before.performance_targets.step is None
    assert run(["calibrate", str(folder)]) == 0
    plan = read_plan(folder / "training_plan.json")
    [found] = read_findings(Store.open(folder)).calibrations
    shares = tuple(found.layout.share(rank) for rank in range(4))
    hardware, step = plan.hardware_calibration, plan.performance_targets.step
    size = plan.batch_configuration.global_batch_size
    assert plan.batch_configuration == before.batch_configuration
    assert [share * size for share in hardware.workload_distribution.values()] == pytest.approx(shares)
    assert len(hardware.measured_performance) == 4
    assert hardware.all_reduce is not None
    assert hardware.all_reduce.latency_seconds == pytest.approx(2e-4, rel=1e-3)
    assert step is not None
    assert plan.performance_targets.tokens_per_second == pytest.approx(size / step.seconds)
    assert shares[0] > shares[3]
    assert train_spec(plan).layout == found.layout
    capsys.readouterr()
    assert run(["train", str(folder / "training_plan.json"), "--out", str(tmp_path / "run"), "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)["record"]["result"]
    seconds = trained["seconds"] / trained["steps"]
    assert seconds == pytest.approx(step.seconds, rel=0.05)  # the others evaluate for longer than rank 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "One device has nothing to share"),
        (["--devices", "1"], "One device has nothing to share"),
        (["--devices", "0"], "devices"),
        (["--devices", "65"], "65 devices cannot share a batch of 64"),
        (["--devices", "2", "--batch-size", "5000"], "more than the 2,048 samples"),
        (["--devices", "2", "--batch-size", "0"], "batch-size"),
    ],
)
def test_wrong_requests_get_a_sentence(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = measured(tmp_path / "study", 64)
    capsys.readouterr()
    assert run(["calibrate", str(folder), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_study_without_throughput_has_nothing_to_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "study"
    assert run(["check", "simulated", "--out", str(folder), *SMALL]) == 0
    capsys.readouterr()
    assert run(["calibrate", str(folder), "--devices", "2"]) == 2
    assert "No throughput was measured" in capsys.readouterr().err


def test_a_device_that_holds_no_sample_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = measured(tmp_path / "study", 64, worker_memories="1,0.063")
    capsys.readouterr()
    assert run(["calibrate", str(folder), "--devices", "2"]) == 2
    assert "fits into the" in capsys.readouterr().err
