"""`batchlab.find_max_batch_size`: the largest micro-batch of a task, from a script, without a study's folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.core.batch import Unit
from batchlab.core.check import CheckResult
from batchlab.core.errors import BatchlabError, InputError
from batchlab.core.experiment import Experiment, TaskReference, build_experiment
from batchlab.core.protocols import View
from batchlab.core.settings import merge
from batchlab.core.task import Task
from batchlab.storage.atomic import scratch_folder
from batchlab.storage.store import Store
from batchlab.study.engines import engine_factory
from batchlab.study.open_study import OpenStudy, prepare
from batchlab.study.predictions import prediction_folder
from batchlab.study.progress import open_view
from batchlab.study.session import Session
from batchlab.study.stages.capacity import capacity_stage, checked_for_memory, search_line
from batchlab.study.stages.capacity_request import CapacityRequest
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.variants import variants_stage
from batchlab.study.task_source import resolve_task
from batchlab.words.capacity import capacity_lines


class MaxBatchSize(Capacity):
    """A capacity that prints as the lines of `batchlab capacity`."""

    __slots__ = ()

    @classmethod
    def of(cls, capacity: Capacity) -> MaxBatchSize:
        """The same numbers, in the form that prints."""
        return cls(**{field.name: getattr(capacity, field.name) for field in fields(capacity)})

    def __str__(self) -> str:
        return "\n".join(capacity_lines(self))


def find_max_batch_size(
    task: Task | str | Path,
    *,
    memory_limit: int | str | None = None,
    headroom: str = "5%",
    prove: bool = False,
    accumulate: bool = True,
    most: int | None = None,
    verify_largest: bool = False,
    device: str = "auto",
    precision: str = "fp32",
    time_limit: float = 600.0,
    settings: dict[str, Any] | None = None,
) -> MaxBatchSize:
    """The largest micro-batch that fits. Each probe runs in a fresh process; your model and optimizer are not touched.

    task: a `batchlab.task(...)` kept in a variable of a module, or what the command line takes as TASK. The probing
        processes import it from there, so call this under `if __name__ == "__main__":`.
    memory_limit: bytes, or text like "16GiB", above a warmed-up process; default: the device's memory.
    headroom: share ("5%") or amount ("512MiB") of the limit left free; "0" for the exact largest size.
    prove: also run one more sample, which must fail.
    accumulate: leave room for gradients that stay alive between the micro-batches of one step.
    most: the largest size of interest; default: all of the training data.
    verify_largest: without a memory limit, run the largest size even where its probe takes more than a minute.
    time_limit: seconds without a sign of life after which a probe is stopped.
    settings: any other of `batchlab settings`, by section, e.g. {"optimizer": {"name": "sgd"}}.

    Raises InputError for a task that cannot be found or imported, BatchlabError for one whose own code fails.
    """
    values = _values(task) if isinstance(task, Task) else resolve_task(str(task))
    chosen: dict[str, dict[str, Any]] = {
        "batch": {"micro_batching": "auto" if accumulate else "off"},
        "device": {
            "name": device,
            "precision": precision,
            "headroom": headroom,
            "memory_limit": memory_limit,
            "silence_seconds": time_limit,
        },
    }
    if values.get("device", {}).get("name") == "simulated":
        chosen["device"]["name"] = "simulated"
    experiment = build_experiment(merge(merge(values, chosen), settings or {}))
    return measure_capacity(experiment, CapacityRequest(prove=prove, most=most, verify_largest=verify_largest))


def measure_capacity(
    asked: Experiment, request: CapacityRequest, *, quiet: bool = True, study: Path | None = None
) -> MaxBatchSize:
    """The capacity of an experiment's task, measured in a temporary folder.

    study: the folder of a study that keeps the traces of a prediction for another card.

    Raises InputError for a task that cannot be loaded, BatchlabError for one whose own code fails.
    """
    keep = None if study is None else (study, request.card_bytes or 0)
    with scratch_session(asked, quiet=quiet, keep=keep) as session:
        session.view.say(f"   cost: {search_line(session, request)}")
        try:
            independent = request.card_bytes is not None or _samples_are_independent(session, request)
            found = capacity_stage(session, request, sample_independent=independent)
            if request.variants:
                found = replace(found, variants=variants_stage(session, found, request, sample_independent=independent))
            return MaxBatchSize.of(found)
        except StageFailed as failure:
            raise BatchlabError(str(failure)) from None


def _samples_are_independent(session: Session, request: CapacityRequest) -> bool:
    """Whether a batch may be split, by a check that runs steps. Raises BatchlabError where the task's code fails.

    A prediction runs nothing, so it assumes that a batch may be split.
    """
    checked = checked_for_memory(session, request)
    if not isinstance(checked, CheckResult):
        raise BatchlabError(f"The task failed while it was checked: {checked.reason}")
    return checked.sample_independent


@contextmanager
def scratch_session(
    asked: Experiment, *, quiet: bool = True, keep: tuple[Path, int] | None = None
) -> Iterator[Session]:
    """A session on a study in a temporary folder, or on the prediction that a study's folder keeps for a card of so
    many bytes. Raises InputError as `prepare` does."""
    make_engine = engine_factory(asked)
    experiment, task_info = prepare(asked, make_engine, sweep=False)
    with scratch_folder() as scratch:
        folder = scratch / "study" if keep is None else prediction_folder(keep[0], experiment, task_info, keep[1])
        store = Store.create(folder, experiment)
        view: View = open_view(quiet)
        try:
            study = OpenStudy(store, experiment, task_info)
            yield Session(study, make_engine, view, retry_failed=keep is not None)
        finally:
            view.close()


def _values(task: Task) -> dict[str, Any]:
    """Where a task can be imported from: InputError where it cannot."""
    for module in [sys.modules["__main__"], *list(sys.modules.values())]:
        for name, value in list(vars(module).items()):
            if value is task:
                return {"name": "task", "task": _reference(module, name).model_dump(), "unit": Unit(task.unit).value}
    raise InputError(
        "find_max_batch_size was given a task that no module holds, so other processes cannot import it; keep it in a "
        "variable of your file: task = batchlab.task(...)."
    )


def _reference(module: Any, name: str) -> TaskReference:
    if module.__name__.startswith("_batchlab_task_"):
        raise InputError(
            f"{module.__file__} calls find_max_batch_size while it is imported, as every trial does; "
            'put the call under: if __name__ == "__main__":'
        )
    file = getattr(module, "__file__", None)
    if module.__name__ != "__main__" and "." in module.__name__:
        return TaskReference(kind="module", target=module.__name__, attribute=name)
    if file is None or not Path(file).is_file():
        raise InputError(
            "find_max_batch_size was called where the task is in no file (a notebook or a prompt), so other processes "
            "cannot import it; write model, data and task to a file, e.g. mine.py, and give its name instead."
        )
    return TaskReference(kind="file", target=str(Path(file).resolve()), attribute=name)
