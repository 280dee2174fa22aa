"""Which integration a function in the person's file is meant for, by what it takes.

`make_trainer(args)` returns a Hugging Face Trainer for the given TrainingArguments, `make()` a LightningModule with its
data. A function of (workload, cache_dir) builds a batchlab task, which needs no integration.
"""

from __future__ import annotations

from inspect import Parameter, signature
from types import FunctionType

from batchlab.core.experiment import TaskReference
from batchlab.core.integration import IntegrationName
from batchlab.runs.task_module import import_task_module

BY_ARGUMENTS: dict[int, IntegrationName] = {0: "lightning", 1: "hf"}
"""How many arguments a function needs → the integration that calls it."""


def named_factory(reference: TaskReference) -> IntegrationName | None:
    """The integration of the function that a reference names; None where it names none, or no such function.

    Raises InputError where the file does not import.
    """
    if reference.kind == "command":
        return "script"
    if reference.kind == "recipe" or reference.attribute == "task":
        return None
    module = import_task_module(reference)
    return factory_for(getattr(module, reference.attribute, None))


def factory_for(value: object) -> IntegrationName | None:
    """The integration of a function, by how many arguments it needs; None for anything else."""
    if not isinstance(value, FunctionType):
        return None
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        one for one in signature(value).parameters.values() if one.default is one.empty and one.kind in positional
    ]
    return BY_ARGUMENTS.get(len(needed))
