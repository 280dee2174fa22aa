"""The Hugging Face Trainer as an integration: which function carries out which spec."""

from __future__ import annotations

from typing import assert_never

from batchlab.core.protocols import RunContext, RunResult
from batchlab.core.record import Outcome, TraceResult
from batchlab.core.spec import (
    AllReduceSpec,
    CapacitySpec,
    CheckSpec,
    InspectSpec,
    Spec,
    ThroughputSpec,
    TraceSpec,
    TrainSpec,
    WorkersSpec,
)
from batchlab.integrations.hf.check import check
from batchlab.integrations.hf.inspect import inspect
from batchlab.integrations.hf.measure import measure, probe
from batchlab.integrations.hf.train import train
from batchlab.integrations.hf.trainer import Trainers
from batchlab.torch_ import device as devices

NOT_TRACED = "A Trainer is not traced."


class HuggingFace:
    """Carries out specs with the Trainer that a person's `make_trainer(args)` returns."""

    def run(self, spec: Spec, context: RunContext) -> RunResult:
        """One spec, in this process. OutOfMemory, Interrupted and errors of the person's code pass through."""
        if isinstance(spec, TraceSpec):
            return RunResult(Outcome.COMPLETED, "", TraceResult(untraceable=NOT_TRACED))
        devices.prepare(spec.device, seed=0)
        trainers = Trainers(spec.workload)
        result = self._carried_out(trainers, spec, context)
        return result._replace(environment=devices.describe(spec.device))

    def _carried_out(self, trainers: Trainers, spec: Spec, context: RunContext) -> RunResult:
        match spec:
            case InspectSpec():
                return inspect(trainers, spec, context)
            case CheckSpec():
                return check(trainers, spec, context)
            case CapacitySpec():
                return probe(trainers, spec, context)
            case ThroughputSpec():
                return measure(trainers, spec, context)
            case TrainSpec():
                return train(trainers, spec, context)
            case TraceSpec() | WorkersSpec() | AllReduceSpec():
                raise AssertionError(spec.kind)
            case _ as never:
                assert_never(never)
