"""The person's file in this process: imported once, also where a worker does many runs of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType, ModuleType

from batchlab.core.errors import InputError
from batchlab.core.experiment import TaskReference
from batchlab.core.spec import Workload
from batchlab.runs.task_module import import_task_module


def person_module(reference: TaskReference) -> ModuleType:
    """The imported file or module. Raises InputError where it does not import."""
    name = f"_batchlab_task_{Path(reference.target).stem}" if reference.kind == "file" else reference.target
    known = sys.modules.get(name)
    if known is not None and hasattr(known, reference.attribute):
        return known
    return import_task_module(reference)


def person_function(workload: Workload) -> tuple[ModuleType, FunctionType]:
    """The file, and the function in it that the study names.

    Raises InputError where there is none, and where the study has settings of a model or data that only a recipe takes.
    """
    reference = workload.task
    module = person_module(reference)
    function = getattr(module, reference.attribute, None)
    if not isinstance(function, FunctionType):
        raise InputError(f"{reference.target} has no function {reference.attribute!r}.")
    given = [*workload.model, *(["data.path"] if workload.data.path or workload.data.valid_path else [])]
    if given:
        raise InputError(
            f"{reference.attribute} in {reference.target} builds its own model and data: change {', '.join(given)} "
            "there instead."
        )
    return module, function
