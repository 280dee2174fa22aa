"""The person's file in this process, imported once, also where a worker does many runs of it, and its function."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from batchlab.core.errors import InputError
from batchlab.core.experiment import TaskReference
from batchlab.core.frameworks import load_framework
from batchlab.core.spec import Workload
from batchlab.runs.foreign_code import or_as_it_is
from batchlab.runs.task_module import alone_on_the_command_line, import_task_module


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


class _Trains(BaseException):
    """Ends a call from inside; no Exception, so that the person's own `except Exception` does not catch it."""


def made_by(function: FunctionType, workload: Workload, what: str, *arguments: Any) -> Any:
    """What the person's function returns, which should be `what`. It is called for every run, as nobody's script.

    Raises InputError where it trains, or ends the program.
    """
    target = workload.task.target

    def trains() -> None:
        raise _Trains

    try:
        with alone_on_the_command_line(target), load_framework("torch").watch_training(trains):
            return function(*arguments)
    except _Trains:
        error = InputError(
            f"{function.__name__} in {target} trains, and every run of a study calls it. Let it return {what}, and "
            "train elsewhere in the file."
        )
        raise or_as_it_is(error, target) from None
    except SystemExit as end:
        error = InputError(
            f"{function.__name__} in {target} ends the program when it is called, with exit code {end.code}. It should "
            f"return {what}."
        )
        raise or_as_it_is(error, target) from None
