"""Lightning as an integration: which function carries out which spec."""

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
from batchlab.integrations.lightning.check import check
from batchlab.integrations.lightning.inspect import inspect
from batchlab.integrations.lightning.made import Modules
from batchlab.integrations.lightning.measure import measure, probe
from batchlab.integrations.lightning.train import train
from batchlab.torch_ import device as devices

NOT_TRACED = "A LightningModule is not traced."


class Lightning:
    """Carries out specs with lightning.Trainer and what a person's `make()` returns."""

    def run(self, spec: Spec, context: RunContext) -> RunResult:
        """One spec, in this process. OutOfMemory, Interrupted and errors of the person's code pass through."""
        if isinstance(spec, TraceSpec):
            return RunResult(Outcome.COMPLETED, "", TraceResult(untraceable=NOT_TRACED))
        devices.prepare(spec.device, seed=0)
        result = self._carried_out(Modules(spec.workload), spec, context)
        return result._replace(environment=devices.describe(spec.device))

    def _carried_out(self, modules: Modules, spec: Spec, context: RunContext) -> RunResult:
        match spec:
            case InspectSpec():
                return inspect(modules, spec, context)
            case CheckSpec():
                return check(modules, spec, context)
            case CapacitySpec():
                return probe(modules, spec, context)
            case ThroughputSpec():
                return measure(modules, spec, context)
            case TrainSpec():
                return train(modules, spec, context)
            case TraceSpec() | WorkersSpec() | AllReduceSpec():
                raise AssertionError(spec.kind)
            case _ as never:
                assert_never(never)
