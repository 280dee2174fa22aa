"""Loads a workload: the task's functions, its data, its framework.

Runs in worker processes only. `code_files` lists what the person's file imported from its project, so that a later edit
is noticed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from batchlab.core.errors import InputError, did_you_mean, quote
from batchlab.core.experiment import Experiment, TaskReference
from batchlab.core.format import format_percent
from batchlab.core.frameworks import SHIPPED, installed, load_framework, name_of_model, own_name, possible_models
from batchlab.core.protocols import Dataset, Framework
from batchlab.core.record import FileDigest, TaskInfo
from batchlab.core.spec import Workload
from batchlab.core.task import Task
from batchlab.data.digests import file_digest
from batchlab.data.files import text_files
from batchlab.data.source import describe_source, open_dataset
from batchlab.recipes import Recipe, recipe
from batchlab.runs.foreign_code import no_task_but, no_task_in, recognised
from batchlab.runs.task_module import import_task_module


@dataclass(frozen=True, slots=True)
class Loaded:
    """A workload in memory."""

    task: Task
    train: Dataset
    valid: Dataset
    framework: Framework
    framework_name: str
    source: str

    @property
    def data_digest(self) -> str:
        return hashlib.sha256(f"{self.train.digest}\n{self.valid.digest}".encode()).hexdigest()


def load(workload: Workload, cache_dir: Path) -> Loaded:
    """The task with its data opened. `cache_dir` is for files derived from the data, such as token files.

    Raises InputError where the task, its data or its framework cannot be loaded.
    """
    task = load_task(workload, cache_dir)
    unit, length = task.unit, task.sequence_length
    data = workload.data
    opened = partial(open_dataset, unit=unit, sequence_length=length, cache_dir=cache_dir, collate=task.collate)
    train = opened(task.train, what="training data", windows=data.windows, stride=data.stride, fraction=data.fraction)
    valid = opened(task.valid, what="held-out data")
    source = task.source or f"{describe_source(task.train)}; held out: {describe_source(task.valid)}"
    if data.fraction < 1:
        source += f"; first {format_percent(data.fraction)} of the training tokens"
    name, framework = framework_of(task, workload.framework)
    return Loaded(task, train, valid, framework, name, source)


def framework_of(task: Task, chosen: str | None) -> tuple[str, Framework]:
    """The name and the framework of a task: as it says, as `chosen` for the study, or else that of its model.

    Raises InputError where these disagree, and where the framework is unknown or not installed.
    """
    own = task.framework
    if own is None or isinstance(own, str):
        name: str = own or chosen or _framework_of_model(task)
        framework = load_framework(name)
    else:
        name, framework = own_name(own), own
    if chosen is not None and name != chosen:
        raise InputError(f"The task computes with {name}, and the setting framework is {chosen!r}; omit the setting.")
    return name, framework


def _framework_of_model(task: Task) -> str:
    """A model is made only where more than one framework could have made it."""
    names = installed()
    if not names:
        raise InputError(
            "No framework is installed that a task could train with; run: pip install 'batchlab[torch]', or on a Mac "
            "pip install 'batchlab[mlx]'."
        )
    if len(names) == 1:
        return names[0]
    model = task.model()
    name = name_of_model(model)
    if name is None:
        raise InputError(
            f"model=… returned {type(model).__name__}; return a {possible_models()}, or give task(framework=…)."
        )
    return name


def load_task(workload: Workload, cache_dir: Path) -> Task:
    """The Task that a reference names: built by a recipe, or found in a person's file or module.

    Raises InputError where there is none, or where the file does not import.
    """
    reference = workload.task
    if reference.kind == "recipe":
        found = recipe(reference.target)
        name = _framework_of_recipe(found, workload.framework)
        load_framework(name)  # where it is missing, the error says how to install it
        return found.task(workload.model_copy(update={"framework": name}), cache_dir)
    module = import_task_module(reference, [workload.framework] if workload.framework in SHIPPED else None)
    builder = getattr(module, reference.attribute, None)
    if isinstance(builder, FunctionType) and builder.__module__ == module.__name__:
        return _built(builder, workload, cache_dir, reference)
    if workload.model:
        raise InputError(
            f"{reference.target} describes its own model: change the model settings {sorted(workload.model)} there."
        )
    if workload.data.path or workload.data.valid_path:
        raise InputError(
            f"{reference.target} brings its own data: change train= and valid= there instead of data.path."
        )
    return _task_in(module, reference)


def _framework_of_recipe(found: Recipe, chosen: str | None) -> str:
    """The chosen one, else the first of the recipe's frameworks that is installed, else the first."""
    if chosen is None:
        return next((name for name in found.frameworks if SHIPPED[name].installed), found.frameworks[0])
    if chosen not in found.frameworks:
        raise InputError(
            f"The recipe {found.name} has no model in {quote(chosen)}; possible: {', '.join(found.frameworks)}."
        )
    return chosen


def _built(builder: Callable[..., Any], workload: Workload, cache_dir: Path, reference: TaskReference) -> Task:
    """The Task that a function like those of the recipes builds from the study's settings of model and data."""
    try:
        signature(builder).bind(workload, cache_dir)
    except TypeError:
        raise InputError(
            f"{reference.target}: {reference.attribute} must take (workload, cache_dir) and return a batchlab task, as "
            "the function that `batchlab recipes quickstart --python` prints does; or keep a task in a variable: "
            "task = batchlab.task(model=…, loss=…, train=…, valid=…)."
        ) from None
    made = builder(workload, cache_dir)
    if isinstance(made, Task):
        return made
    if (found := recognised(made, f"{reference.attribute}()")) is not None:
        raise no_task_but(reference.target, found)
    raise InputError(
        f"{reference.target}: {reference.attribute}(workload, cache_dir) returned {type(made).__name__}; return a "
        "batchlab task, as the function that `batchlab recipes quickstart --python` prints does."
    )


def _task_in(module: ModuleType, reference: TaskReference) -> Task:
    named = vars(module).get(reference.attribute)
    if (foreign := recognised(named, reference.attribute)) is not None:
        raise no_task_but(reference.target, foreign)
    found = {name: value for name, value in vars(module).items() if isinstance(value, Task)}
    if reference.attribute in found:
        return found[reference.attribute]
    if not found:
        raise no_task_in(reference.target, vars(module))
    if reference.attribute == "task" and len(found) == 1:
        return next(iter(found.values()))
    raise InputError(
        f"{reference.target} has no task named {reference.attribute!r}; it has {', '.join(sorted(found))}."
        + did_you_mean(reference.attribute, found)
    )


def code_files(reference: TaskReference) -> dict[str, str]:
    """Path → sha256 of the task's file and of every module loaded from the same folder tree.

    Without installed packages and virtual environments: their versions are in each record.
    """
    if reference.kind == "recipe":
        return {}
    if reference.kind == "file":
        main = Path(reference.target).resolve()
        root = main.parent
    else:
        main = Path(sys.modules[reference.target].__file__ or "").resolve()
        root = main.parents[reference.target.count(".")]
    files = {main}
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if origin and origin.endswith(".py") and Path(origin).is_absolute():  # torch.ops says it is _ops.py
            path = Path(origin).resolve()
            if path.is_relative_to(root) and not _installed(path.relative_to(root)) and not _is_batchlab(path):
                files.add(path)
    return hash_files(sorted(files))


def hash_files(paths: Iterable[Path]) -> dict[str, str]:
    """Path → sha256 of the content; the empty string for a file that is missing."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in map(Path, paths)
    }


def data_files(paths: Iterable[str | Path], cache_dir: Path) -> dict[str, FileDigest]:
    """Path → digest of every data file, and of every text file of a data folder; without what is no local file."""
    found = [Path(path).expanduser().resolve() for path in paths]
    files = [file for path in found for file in (text_files(path, "data") if path.is_dir() else [path])]
    return {str(file): file_digest(file, cache_dir) for file in files if file.is_file()}


def workload_of(experiment: Experiment, task_info: TaskInfo | None = None) -> Workload:
    """What the study's specs train. The digests, which enter the run ids, are known once the task is inspected."""
    workload = Workload(
        task=experiment.task,
        unit=experiment.unit,
        sequence_length=experiment.sequence_length,
        model=experiment.model,
        framework=experiment.framework,
        data=experiment.data,
        command=experiment.command,
        metric=experiment.evaluation.judged_by,
    )
    if task_info is None:
        return workload
    known = {
        "integration": task_info.integration,
        "data_digest": task_info.data_digest,
        "code_digest": digest_of(task_info.code),
    }
    return workload.model_copy(update=known)


def digest_of(code: dict[str, str]) -> str:
    """One digest over a set of hashed files, independent of the project's folder."""
    names = {Path(path).name: digest for path, digest in code.items()}
    return hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest() if code else ""


def _installed(relative: Path) -> bool:
    return any(part in {"site-packages", "dist-packages"} or part.startswith(".") for part in relative.parts[:-1])


def _is_batchlab(path: Path) -> bool:
    return path.is_relative_to(Path(__file__).resolve().parents[1])
