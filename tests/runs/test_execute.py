"""Preparing a worker process for a spec."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import batchlab.runs.execute as executing
from batchlab.core.errors import InputError, StudyChanged
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import MemoryBound, OutOfMemory, RunResult
from batchlab.core.record import CapacityResult, Outcome
from batchlab.core.spec import (
    CapacitySpec,
    CheckSpec,
    DeviceSettings,
    GradientSampling,
    InspectSpec,
    TraceSpec,
    Workload,
)
from batchlab.runs.execute import execute

TASK = """
import numpy as np, torch, batchlab
x = np.random.default_rng(SEED).normal(size=(64, 4)).astype(np.float32)
task = batchlab.task(
    model=lambda: torch.nn.Linear(4, 1),
    loss=lambda model, x, y: (model(x) - y).square().mean(),
    train=(x[:40], x[:40, :1]),
    valid=(x[40:], x[40:, :1]),
)
"""


class Nothing:
    """A RunContext that only has a folder."""

    path = Path()
    repaired_lines = 0

    def __init__(self, folder: Path) -> None:
        self.cache_dir = folder

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def workload(path: Path, digest: str = "") -> Workload:
    return Workload(task=TaskReference(kind="file", target=str(path)), unit="samples", data_digest=digest)


@pytest.mark.parametrize(("seed", "refused"), [("0", False), ("", True)])
def test_data_that_differs_each_time_it_is_loaded_is_refused(tmp_path: Path, seed: str, refused: bool) -> None:
    path = tmp_path / f"drawn_{'anew' if refused else 'once'}.py"
    path.write_text(TASK.replace("SEED", seed))
    inspected = execute(InspectSpec(workload=workload(path)), Nothing(tmp_path)).result
    assert inspected is not None
    assert inspected.kind == "inspect"
    later = CheckSpec(workload=workload(path, inspected.data_digest))
    if refused:
        with pytest.raises(StudyChanged, match="other data than"):
            execute(later, Nothing(tmp_path))
    else:
        assert execute(later, Nothing(tmp_path)).outcome is Outcome.COMPLETED


FILES = """
import torch, batchlab
task = batchlab.task(
    model=lambda: torch.nn.Embedding(256, 256),
    loss=lambda model, x, y: torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()),
    train=TRAIN,
    valid=VALID,
    sequence_length=8,
)
"""


def test_a_data_file_that_was_damaged_is_refused(tmp_path: Path) -> None:
    path, train, valid = (tmp_path / name for name in ("reads_files.py", "train.txt", "valid.txt"))
    path.write_text(FILES.replace("TRAIN", repr(str(train))).replace("VALID", repr(str(valid))))
    train.write_text("some text to train with. " * 40)
    valid.write_text("held out, and of another kind. " * 10)
    work = Workload(task=TaskReference(kind="file", target=str(path)), sequence_length=8)
    inspected = execute(InspectSpec(workload=work), Nothing(tmp_path)).result
    assert inspected is not None
    assert inspected.kind == "inspect"
    assert set(inspected.data_files) == {str(train), str(valid)}
    before = train.stat()
    train.write_text(train.read_text().replace("train", "brain", 1))
    os.utime(train, ns=(before.st_atime_ns, before.st_mtime_ns))
    later = CheckSpec(workload=work.model_copy(update={"data_digest": inspected.data_digest}))
    with pytest.raises(StudyChanged, match="not what this study began with"):
        execute(later, Nothing(tmp_path))
    train.unlink()
    with pytest.raises(StudyChanged, match="cannot be now"):
        execute(later, Nothing(tmp_path))
    with pytest.raises(InputError) as first:
        execute(CheckSpec(workload=work.model_copy(update={"sequence_length": 4})), Nothing(tmp_path))
    assert not isinstance(first.value, StudyChanged), "no study has begun with this workload"


def test_a_trace_needs_no_such_device_here(tmp_path: Path) -> None:
    path = tmp_path / "traced.py"
    path.write_text(TASK.replace("SEED", "0"))
    spec = TraceSpec(workload=workload(path), micro_batch_sizes=(4, 2), device=DeviceSettings(name="cuda:7"))
    result = execute(spec, Nothing(tmp_path)).result
    assert result is not None
    assert result.kind == "trace"
    assert [point.micro_batch_size for point in result.points] == [2, 4]
    assert {phase.parameter_bytes for phase in result.points[0].phases} == {4 * (4 + 1)}


@pytest.mark.parametrize(("most", "drawn"), [(32, {2: 2, 8: 2, 32: 5}), (8, {2: 2, 8: 5}), (2, {2: 5})])
def test_all_batches_are_drawn_at_the_largest_size_that_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, drawn: dict[int, int]
) -> None:
    path = tmp_path / "drawn.py"
    path.write_text(TASK.replace("SEED", "0"))
    monkeypatch.setattr(executing, "_too_much", lambda smaller, size: size > most)
    spec = TraceSpec(workload=workload(path), micro_batch_sizes=(2, 8, 32), draws=5)
    result = execute(spec, Nothing(tmp_path)).result
    assert result is not None
    assert result.kind == "trace"
    assert {point.micro_batch_size: len(point.draw_bytes) for point in result.points} == drawn


SEQUENCES = """
import numpy as np, torch, batchlab


class Sequences:
    digest = "one to nine"
    lengths = np.array([3, 9, 1, 5, 7])

    def __len__(self):
        return 5

    def gather(self, indices):
        x = np.zeros((len(indices), self.lengths[indices].max(), 4), np.float32)
        return x, x[:, :, :1]


task = batchlab.task(
    model=lambda: torch.nn.Linear(4, 1),
    loss=lambda model, x, y: (model(x) - y).square().mean(),
    train=Sequences(),
    valid=Sequences(),
    unit="samples",
)
"""


def test_a_probe_and_a_trace_take_the_longest_samples(tmp_path: Path) -> None:
    path = tmp_path / "sequences.py"
    path.write_text(SEQUENCES)
    probed = execute(CapacitySpec(workload=workload(path), micro_batch_size=3), Nothing(tmp_path)).result
    assert probed is not None
    assert probed.kind == "capacity"
    assert probed.batch_shapes == ((3, 9, 4), (3, 9, 1))
    sampled = CapacitySpec(
        workload=workload(path), micro_batch_size=3, gradients=GradientSampling(every=2), snapshot="full"
    )
    assert execute(sampled, Nothing(tmp_path)).outcome is Outcome.COMPLETED
    traced = execute(TraceSpec(workload=workload(path), micro_batch_sizes=(1,)), Nothing(tmp_path)).result
    assert traced is not None
    assert traced.kind == "trace"
    forward = next(phase for phase in traced.points[0].phases if phase.phase == "forward")
    assert forward.activation_bytes >= 4 * 9 * (4 + 1)


def test_a_probe_that_runs_out_of_memory_says_how_much_there_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> RunResult:
        raise OutOfMemory("CUDA out of memory.")

    monkeypatch.setattr(executing, "probe", fails)
    monkeypatch.setattr(executing, "_process", executing._Process(bound=MemoryBound(0, 700)))
    path = tmp_path / "small.py"
    path.write_text(TASK.replace("SEED", "0"))
    found = execute(CapacitySpec(workload=workload(path), micro_batch_size=8), Nothing(tmp_path))
    assert found.outcome is Outcome.OUT_OF_MEMORY
    assert isinstance(found.result, CapacityResult)
    assert not found.result.fits
    assert found.result.available_bytes == 700
