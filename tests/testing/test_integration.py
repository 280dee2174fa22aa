"""check_integration accepts a sound integration and names what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import TaskReference
from batchlab.core.pairing import Pairing
from batchlab.core.protocols import Integration, Interrupted, RunContext, RunResult
from batchlab.core.record import MetricRow, Outcome, TaskInfo, TraceResult, TrainResult
from batchlab.core.spec import InspectSpec, Spec, TrainSpec, Workload
from batchlab.testing import check_integration

SPEC = TrainSpec(
    workload=Workload(task=TaskReference(kind="file", target="/mine.py"), unit=Unit.SAMPLES),
    layout=BatchLayout(global_batch_size=4, micro_batch_size=4),
    learning_rate=0.1,
    token_budget=40,
    evaluation_interval=40,
)


class Toy:
    """A trainer whose loss follows from its seed."""

    def run(self, spec: Spec, context: RunContext) -> RunResult:
        if isinstance(spec, InspectSpec):
            return RunResult(Outcome.COMPLETED, "", self.info())
        if not isinstance(spec, TrainSpec):
            return RunResult(Outcome.COMPLETED, "", TraceResult(untraceable="a toy"))
        if context.stop_requested():
            raise Interrupted
        return self.train(spec, context)

    def info(self) -> TaskInfo:
        return TaskInfo(
            unit=Unit.SAMPLES,
            sequence_length=1,
            train_samples=100,
            valid_samples=10,
            parameter_count=1,
            optimizer_family="adam",
            integration="script",
            data_source="toy",
            data_digest="",
            device="cpu",
        )

    def train(self, spec: TrainSpec, context: RunContext) -> RunResult:
        loss = self.loss(spec)
        context.row(MetricRow(step=spec.steps, tokens=spec.token_budget, val_loss=loss))
        result = TrainResult(steps=spec.steps, tokens=spec.token_budget, val_loss=loss)
        return RunResult(Outcome.COMPLETED, "", result, Pairing.DECLARED)

    def loss(self, spec: TrainSpec) -> float:
        return 1.0 + spec.seed


class IgnoresTheSeed(Toy):
    def loss(self, spec: TrainSpec) -> float:
        return 1.0


class Random(Toy):
    losses = iter(range(1, 9))

    def loss(self, spec: TrainSpec) -> float:
        return next(self.losses)


class NamesNothing(Toy):
    def info(self) -> TaskInfo:
        return super().info().model_copy(update={"integration": None})


class TrainsLess(Toy):
    def train(self, spec: TrainSpec, context: RunContext) -> RunResult:
        return RunResult(Outcome.COMPLETED, "", TrainResult(steps=1, tokens=4, val_loss=1.0))


class CannotStop(Toy):
    def run(self, spec: Spec, context: RunContext) -> RunResult:
        return self.train(spec, context) if isinstance(spec, TrainSpec) else super().run(spec, context)


def test_a_sound_integration_passes(tmp_path: Path) -> None:
    info, result = check_integration(Toy, SPEC, tmp_path)
    assert info.integration == "script"
    assert result.pairing is Pairing.DECLARED


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (IgnoresTheSeed, "two seeds gave 1.0"),
        (Random, "one seed gave"),
        (NamesNothing, "must name the integration"),
        (TrainsLess, "4 tokens were trained instead of 40"),
        (CannotStop, "must raise Interrupted"),
    ],
)
def test_a_broken_integration_is_named(broken: type[Integration], said: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=said):
        check_integration(broken, SPEC, tmp_path)
