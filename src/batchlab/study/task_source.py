"""TASK on the command line: a recipe's name, a study.toml, file.py[:name] or package.module:name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from batchlab.core.command import Command
from batchlab.core.errors import ECHO, InputError, quote, sentence_from_validation, shorten
from batchlab.core.experiment import TaskReference
from batchlab.core.settings import field_names, merge, read_toml
from batchlab.integrations.script.template import script_of, template_of
from batchlab.recipes import RECIPES, Variant, dashed, recipe


def resolve_task(task: str, variant: Variant | None = None) -> dict[str, Any]:
    """Nested experiment values for TASK: where the task is, and the settings of its recipe or study.toml.

    `variant`: a recipe's smaller version. Imports nothing of the task. Raises InputError where there is no such recipe,
    file or version.
    """
    if task in RECIPES:
        return _from_recipe(task, variant)
    if variant is not None:
        raise InputError(
            f"--{dashed(variant)} is a smaller version of a recipe, and {quote(task)} is not a recipe; "
            "use --token-budget and --batch-sizes to make a study smaller."
        )
    path, _, attribute = task.partition(":")
    if Path(path).is_dir():
        raise InputError(
            f"{quote(path)} is a folder; give the recipe, study.toml or Python file that the study is of. A study is "
            "continued by the same command that began it."
        )
    if path.endswith(".toml"):
        return _from_toml(Path(path))
    if path.endswith(".py") or Path(path).is_file():
        return _from_file(Path(path), attribute)
    if ":" in task or "." in task:
        reference = TaskReference(kind="module", target=path, attribute=attribute or "task")
        return {"name": path.rpartition(".")[2] or path, "task": reference.model_dump()}
    recipe(task)  # raises InputError with the names of the recipes
    raise AssertionError(task)


def _from_recipe(name: str, variant: Variant | None) -> dict[str, Any]:
    found = recipe(name)
    values = copy.deepcopy(dict(found.experiment))
    if variant is not None:
        values = merge(values, dict(found.variant(variant)))
    study = f"{name}-{dashed(variant)}" if variant else name
    return {"name": study, **values, "task": TaskReference(kind="recipe", target=name).model_dump()}


def _from_file(path: Path, attribute: str) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            f"There is no file {quote(str(path))}; give a Python file that creates a batchlab.task(...), "
            "or the name of a recipe."
        )
    reference = TaskReference(kind="file", target=str(path.resolve()), attribute=attribute or "task")
    return {"name": path.stem, "task": reference.model_dump()}


def _from_toml(path: Path) -> dict[str, Any]:
    try:
        content = read_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no file {quote(str(path))}.") from None
    except ValueError as error:
        raise InputError(f"{quote(str(path))} is not valid TOML: {shorten(str(error), ECHO)}.") from None
    task = content.pop("task", None)
    if "command" in content:
        if task is not None:
            raise InputError(f"{quote(str(path))} has both task and [command]; keep the one that is to be trained.")
        return {"name": path.stem, **_of_command(content, path), **content}
    if not isinstance(task, str) or task.partition(":")[0].endswith(".toml"):
        raise InputError(
            f'{quote(str(path))} must name what to train, e.g. task = "quickstart" (a recipe), "model.py" or '
            '"package.module:name", or have a [command] that runs your script (batchlab init train.py writes one).'
        )
    beside = path.parent / task.partition(":")[0]
    base = resolve_task(str(path.parent / task) if task not in RECIPES and beside.is_file() else task)
    return merge({**base, "name": path.stem}, content)


def _of_command(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """The task of a [command], which runs in the folder of its study.toml."""
    command, folder = content["command"], path.resolve().parent
    if not isinstance(command, dict):
        raise InputError(f"{quote(str(path))}: command must be a section, [command] with run = ….")
    run = command.get("run")
    if not isinstance(run, str):
        raise InputError(f"{quote(str(path))}: [command] needs run = …, e.g. run = '{{python}} train.py …'.")
    command["folder"] = str(folder)
    target = folder / script_of(template_of(parse_command(command)))
    return {"task": TaskReference(kind="command", target=str(target), attribute="run").model_dump()}


def parse_command(values: dict[str, Any]) -> Command:
    """The [command] section. Raises InputError naming the first settings that do not validate."""
    try:
        return Command.model_validate(values)
    except ValidationError as error:
        names = [f"command.{name}" for name in field_names(Command)]
        raise InputError(sentence_from_validation(error, names, prefix="command.")) from None
