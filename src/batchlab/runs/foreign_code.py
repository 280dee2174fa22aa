"""Recognises training code of other packages where a task is expected, and says which lines batchlab needs.

Recognised by the names of classes alone: nothing of those packages is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from inspect import isabstract
from pathlib import Path
from types import FunctionType
from typing import Any

from batchlab.core.errors import InputError
from batchlab.core.frameworks import SHIPPED, name_of_model
from batchlab.core.task import Task


class Kind(Enum):
    """Training code that is no task, the most telling first; the value names it in a sentence."""

    HF_TRAINER = "Hugging Face Trainer"
    LIGHTNING_MODULE = "LightningModule"
    MODULE = "model"


BASES = {
    ("transformers", "Trainer"): Kind.HF_TRAINER,
    ("lightning", "LightningModule"): Kind.LIGHTNING_MODULE,
    ("pytorch_lightning", "LightningModule"): Kind.LIGHTNING_MODULE,
}
"""Package and name of a base class → what its subclasses are, the most special first."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """Something a person's file has: an object, or a class of its own; `name` as the file writes it: `net`, `f()`."""

    kind: Kind
    name: str
    is_class: bool = False
    framework: str = ""  # of a model

    @property
    def lines(self) -> str:
        """The lines to add to the file, with ... for what only the person knows."""
        match self.kind:
            case Kind.HF_TRAINER:
                made = self.name if self.is_class else "Trainer"
                lines = [
                    f"def {MAKES[self.kind]}(args):",
                    "    model = ...",
                    f"    return {made}(model=model, args=args, train_dataset=..., eval_dataset=...)",
                    "",
                    'if __name__ == "__main__":',
                    f"    {MAKES[self.kind]}(args).train()",
                ]
            case Kind.LIGHTNING_MODULE:
                module = f"{self.name}()" if self.is_class else "..."
                lines = [f"def {MAKES[self.kind]}():", f"    return {module}, ..."]
            case Kind.MODULE:
                lines = self._task_lines()
        return "\n".join(f"    {line}" if line else "" for line in lines)

    def _task_lines(self) -> list[str]:
        model = f"{self.name}()" if self.is_class else f"copy.deepcopy({self.name})"
        if self.name.endswith("()"):
            model = self.name
        needed, cross_entropy = SHIPPED[self.framework].cross_entropy
        imports = ["import batchlab", needed]
        if model.startswith("copy."):
            imports.insert(0, "import copy")
        loss = f"loss=lambda model, x, y: {cross_entropy}"
        arguments = [f"model=lambda: {model}", loss, "train=...", "valid=..."]
        return [*imports, "task = batchlab.task(", *(f"    {argument}," for argument in arguments), ")"]


MAKES = {Kind.HF_TRAINER: "make_trainer", Kind.LIGHTNING_MODULE: "make"}
"""Training code that batchlab runs in its own trainer → the function that makes it."""


def recognised(value: Any, name: str) -> Recognised | None:
    """What a value is, given how the person's file writes it; None for a value of no kind that is known."""
    is_class = isinstance(value, type)
    bases = value.__mro__ if is_class else type(value).__mro__
    names = {(base.__module__.partition(".")[0], base.__name__) for base in bases}
    kind = next((kind for base, kind in BASES.items() if base in names), None)
    if kind is not None:
        return Recognised(kind, name, is_class)
    framework = name_of_model(value)
    return None if framework is None else Recognised(Kind.MODULE, name, is_class, framework)


def _all_recognised(variables: Mapping[str, Any]) -> Iterable[Recognised]:
    """Objects, and classes that the file defines itself; the last of each is what the file builds up to."""
    own = variables.get("__name__")
    for name, value in reversed(list(variables.items())):
        imported = isinstance(value, type) and (value.__module__ != own or isabstract(value))
        if not imported and (found := recognised(value, name)) is not None:
            yield found


def _best(variables: Mapping[str, Any]) -> Recognised | None:
    """The most telling thing in a file: a Trainer before a LightningModule before a module, a class before objects."""
    order = list(Kind)
    return min(_all_recognised(variables), key=lambda one: (order.index(one.kind), not one.is_class), default=None)


def no_task_but(target: str, found: Recognised) -> InputError:
    """The error for a file with something recognised where a task is expected."""
    path = Path(target).name
    match found.kind:
        case Kind.HF_TRAINER:
            return InputError(
                f"{target} has the Hugging Face Trainer {found.name}. Make it in a function, with its model, so that "
                f"every run has a fresh one, and name the function: batchlab study {path}:make_trainer\n\n"
                f"{found.lines}\n"
            )
        case Kind.LIGHTNING_MODULE:
            return InputError(
                f"{target} has the LightningModule {found.name}. Add a function that returns it with its data, a "
                "datamodule or a training and a held-out loader, and name the function: "
                f"batchlab study {path}:make\n\n{found.lines}\n"
            )
        case Kind.MODULE:
            error = InputError(
                f"{target} has the {SHIPPED[found.framework].model} {found.name}, but no task. These lines make one, "
                f"with your own loss and data.\n\n{found.lines}\n"
            )
            return or_as_it_is(error, target)


def no_task_in(target: str, variables: Mapping[str, Any]) -> InputError:
    """The error for a file without a task, given its variables."""
    made = next((name for name in MAKES.values() if isinstance(variables.get(name), FunctionType)), None)
    if made is not None:
        return InputError(
            f"{target} makes no task, but has the function {made}: run batchlab study {Path(target).name}:{made}"
        )
    found = _best(variables)
    if found is not None:
        return no_task_but(target, found)
    error = InputError(f"{target} makes no task; add one: task = batchlab.task(model=…, loss=…, train=…, valid=…).")
    return or_as_it_is(error, target)


def or_as_it_is(error: InputError, target: str) -> InputError:
    """The error, which also tells how a file is studied that trains when Python runs it. A module is no such file."""
    if not target.endswith(".py"):
        return error
    said, gap, lines = str(error).partition("\n\n")
    return InputError(
        f"{said} A script that trains is studied as it is: batchlab init {Path(target).name} writes its study.toml."
        f"{gap}{lines}"
    )


def has_task(variables: Mapping[str, Any]) -> bool:
    """Whether a file has a task among its variables."""
    return any(isinstance(value, Task) for value in variables.values())
