"""Recognises training code of other packages where a task is expected, and says which lines make a task of it.

Recognised by the names of classes alone: nothing of those packages is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from inspect import isabstract
from typing import Any

from batchlab.core.errors import InputError
from batchlab.core.task import Task


class Kind(Enum):
    """Training code that is no task, the most telling first; the value names it in a sentence."""

    HF_TRAINER = "Hugging Face Trainer"
    LIGHTNING_MODULE = "LightningModule"
    MODULE = "torch.nn.Module"


BASES = {
    ("transformers", "Trainer"): Kind.HF_TRAINER,
    ("lightning", "LightningModule"): Kind.LIGHTNING_MODULE,
    ("pytorch_lightning", "LightningModule"): Kind.LIGHTNING_MODULE,
    ("torch", "Module"): Kind.MODULE,
}
"""Package and name of a base class → what its subclasses are, the most special first."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """Something a person's file has: an object, or a class of its own; `name` as the file writes it: `net`, `f()`."""

    kind: Kind
    name: str
    is_class: bool = False

    @property
    def lines(self) -> str:
        """The lines to add to the file, with ... for what only the person knows."""
        before, imports, arguments = list[str](), ["import batchlab"], list[str]()
        model = f"{self.name}()" if self.is_class else f"copy.deepcopy({self.name})"
        if self.name.endswith("()"):
            model = self.name
        match self.kind:
            case Kind.HF_TRAINER:
                trainer = self.name
                if self.is_class or not trainer.isidentifier():
                    before, trainer = [f"trainer = {self.name}{'(...)' if self.is_class else ''}"], "trainer"
                model = f"copy.deepcopy({trainer}.model)"
                loss = "lambda model, batch: model(**batch).loss"
                arguments = [f"collate={trainer}.data_collator"]
                data = f"{trainer}.train_dataset", f"{trainer}.eval_dataset"
            case Kind.LIGHTNING_MODULE:
                loss, data = _of_pairs("model.training_step((x, y), 0)"), ("...", "...")
            case Kind.MODULE:
                imports.append("import torch.nn.functional as F")
                loss, data = _of_pairs("F.cross_entropy(model(x), y)"), ("...", "...")
        if model.startswith("copy."):
            imports.insert(0, "import copy")
        arguments = [f"model=lambda: {model}", f"loss={loss}", *arguments, f"train={data[0]}", f"valid={data[1]}"]
        body = [f"    {argument}," for argument in arguments]
        return "\n".join(f"    {line}" for line in [*imports, *before, "task = batchlab.task(", *body, ")"])


def _of_pairs(expression: str) -> str:
    return f"lambda model, x, y: {expression}"


def recognised(value: Any, name: str) -> Recognised | None:
    """What a value is, given how the person's file writes it; None for a value of no kind that is known."""
    is_class = isinstance(value, type)
    bases = value.__mro__ if is_class else type(value).__mro__
    names = {(base.__module__.partition(".")[0], base.__name__) for base in bases}
    kind = next((kind for base, kind in BASES.items() if base in names), None)
    return None if kind is None else Recognised(kind, name, is_class)


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
    match found.kind:
        case Kind.HF_TRAINER:
            return InputError(
                f"{target} has the Hugging Face Trainer {found.name}, but no task. Add these lines; batch size, "
                f"learning rate and schedule are then the study's:\n\n{found.lines}\n"
            )
        case Kind.LIGHTNING_MODULE:
            return InputError(
                f"{target} has the LightningModule {found.name}, but no task. Add these lines, with your own data; "
                f"where samples are dicts, loss=lambda model, batch: model.training_step(batch, 0):\n\n{found.lines}\n"
            )
        case Kind.MODULE:
            return InputError(
                f"{target} has the torch.nn.Module {found.name}, but no task. Add these lines, with your own loss and "
                f"data:\n\n{found.lines}\n"
            )


def no_task_in(target: str, variables: Mapping[str, Any]) -> InputError:
    """The error for a file without a task, given its variables."""
    found = _best(variables)
    if found is not None:
        return no_task_but(target, found)
    return InputError(f"{target} makes no task; add one: task = batchlab.task(model=…, loss=…, train=…, valid=…).")


def has_task(variables: Mapping[str, Any]) -> bool:
    """Whether a file has a task among its variables."""
    return any(isinstance(value, Task) for value in variables.values())
