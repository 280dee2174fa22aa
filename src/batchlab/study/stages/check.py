"""Is the task sound? The first stage."""

from __future__ import annotations

from typing import Literal

from batchlab.core.check import CheckResult
from batchlab.core.record import Record
from batchlab.core.spec import CheckSpec
from batchlab.study.session import Session, run_alone


def check_stage(session: Session, scope: Literal["training", "memory"] = "training") -> CheckResult | Record:
    """Is the task sound? The check's result, or the record of a check that itself failed.

    scope: memory checks only what decides which batches fit.
    """
    middle = session.study.experiment.reference_batch_size
    device = session.device.model_copy(update={"memory_limit": None})  # this stage checks the task, not its size
    spec = CheckSpec(
        workload=session.study.workload,
        scope=scope,
        largest_batch=session.study.experiment.batch.global_batch_sizes[-1],
        optimizer=session.optimizer(middle),
        device=device,
    )
    record = run_alone(session, [spec])[0]
    return record.result if isinstance(record.result, CheckResult) else record
