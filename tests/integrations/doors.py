"""Specs over the files in trainers/, as a study would make them, carried out in this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference, build_experiment
from batchlab.core.integration import IntegrationName
from batchlab.core.protocols import RunResult
from batchlab.core.record import TaskInfo
from batchlab.core.spec import DeviceSettings, InspectSpec, OptimizerSettings, Spec, TrainSpec, Workload
from batchlab.integrations import load_integration
from batchlab.study.open_study import complete
from batchlab.testing.integration import Recorder

TRAINERS = Path(__file__).parent / "trainers"
CPU = DeviceSettings(name="cpu", threads=1)


@dataclass(frozen=True)
class Door:
    """One person's file, inspected."""

    name: IntegrationName
    workload: Workload
    info: TaskInfo
    optimizer: OptimizerSettings
    schedule: Any

    def run(self, spec: Spec, context: Recorder) -> RunResult:
        return load_integration(self.name).run(spec, context)

    def train_spec(self, batch: int, micro: int, samples: int, **changes: Any) -> TrainSpec:
        length = self.info.sequence_length
        values: dict[str, Any] = {
            "workload": self.workload,
            "device": CPU,
            "layout": BatchLayout(global_batch_size=batch, micro_batch_size=micro, sequence_length=length),
            "learning_rate": 1e-3,
            "token_budget": samples * length,
            "schedule": self.schedule,
            "optimizer": self.optimizer,
            "evaluation_interval": samples * length // 2,
            "evaluation_samples": 32,
            "evaluation_batch_size": 10,
            "log_points": 10,
            "checkpoint_seconds": 1e6,
        }
        return TrainSpec(**{**values, **changes})


def open_door(name: IntegrationName, file: str, function: str, folder: Path) -> Door:
    """Inspect a file."""
    task = TaskReference(kind="file", target=str(TRAINERS / file), attribute=function)
    workload = Workload(task=task)
    found = load_integration(name).run(InspectSpec(workload=workload, device=CPU), Recorder(folder / "inspect"))
    info = found.result
    assert isinstance(info, TaskInfo), found.reason
    experiment = complete(build_experiment({"name": "door", "task": task.model_dump()}), info)
    known: dict[str, Any] = {"integration": name, "data_digest": info.data_digest, "unit": info.unit}
    known["metric"] = experiment.evaluation.judged_by
    return Door(
        name,
        workload.model_copy(update={**known, "sequence_length": info.sequence_length}),
        info,
        OptimizerSettings(config=experiment.optimizer),
        experiment.schedule,
    )


class StopsAt(Recorder):
    """Asks to stop when it was asked so many times, once."""

    def __init__(self, path: Path, asked: int) -> None:
        super().__init__(path)
        self._left = asked

    def stop_requested(self) -> bool:
        self._left -= 1
        return self._left == 0
