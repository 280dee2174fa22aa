"""The frameworks that ship: their packages, and how a model tells which of them it was written in.

The one place outside their own packages that names them. None is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from batchlab.core.errors import InputError
from batchlab.core.protocols import Framework


@dataclass(frozen=True, slots=True)
class Shipped:
    """A framework with a package of its own here.

    models: classes in its `models` module, for recipes. forks: whether a process that was forked after it had been
    imported can compute. library: the package of Python that it needs, which is also the extra that installs it; empty:
    none. model: base class of its models. cross_entropy: an import, and a mean loss that needs it, for the lines that a
    file lacks.
    """

    package: str
    factory: str
    models: tuple[str, ...]
    forks: bool
    library: str = ""
    model: str = ""
    cross_entropy: tuple[str, str] = ("", "")

    @property
    def installed(self) -> bool:
        """Whether its library can be imported."""
        return not self.library or self.library in sys.modules or find_spec(self.library) is not None


SHIPPED = {
    "torch": Shipped(
        package="batchlab.torch_",
        factory="TorchFramework",
        models=("Decoder", "LadderLM", "PostNormDecoder"),
        forks=True,
        library="torch",
        model="torch.nn.Module",
        cross_entropy=("import torch.nn.functional as F", "F.cross_entropy(model(x), y)"),
    ),
    "mlx": Shipped(
        package="batchlab.mlx_",
        factory="MlxFramework",
        models=("Decoder",),
        forks=False,
        library="mlx",
        model="mlx.nn.Module",
        cross_entropy=("import mlx.nn as nn", 'nn.losses.cross_entropy(model(x), y, reduction="mean")'),
    ),
    "simulated": Shipped(
        package="batchlab.simulated", factory="SimulatedFramework", models=("Simulation",), forks=True
    ),
}
"""Name → framework; of two that are installed, the first is taken where nothing else decides."""


def load_framework(name: str) -> Framework:
    """The framework of that name. Raises InputError, with the install command, where its library is missing."""
    shipped = _shipped(name)
    try:
        framework: Framework = getattr(importlib.import_module(f"{shipped.package}.framework"), shipped.factory)()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != shipped.library:
            raise
        raise InputError(
            f"This task trains with {name}, which is not installed; run: pip install 'batchlab[{name}]'."
        ) from None
    return framework


def forks(name: str | None) -> bool:
    """Whether workers of this framework may be forked; not where it is none that ships, and None is not known yet."""
    return name is None or (name in SHIPPED and SHIPPED[name].forks)


def models(name: str | None) -> ModuleType:
    """The models of the recipes in that framework, or in the first that is installed. Raises InputError where it is
    missing."""
    name = name or next(iter(installed()), next(iter(SHIPPED)))
    load_framework(name)
    return importlib.import_module(f"{_shipped(name).package}.models")


def installed() -> tuple[str, ...]:
    """Names of the frameworks that people write models in and that are installed here."""
    return tuple(name for name, shipped in SHIPPED.items() if shipped.library and shipped.installed)


def name_of_model(model: Any) -> str | None:
    """The framework whose module a model is, or whose class of modules; None where it is none of them.

    Recognised by the names of base classes, so that nothing is imported.
    """
    bases = model.__mro__ if isinstance(model, type) else type(model).__mro__
    names = {(base.__module__.partition(".")[0], base.__name__) for base in bases}
    return next((name for name, one in SHIPPED.items() if one.model and _base(one.model) in names), None)


def possible_models() -> str:
    """What a model may be, for an error."""
    return " or ".join(shipped.model for shipped in SHIPPED.values() if shipped.model)


def own_name(framework: Framework) -> str:
    """How a study records a framework that does not ship: by its class."""
    return f"{type(framework).__module__}:{type(framework).__qualname__}"


def _base(path: str) -> tuple[str, str]:
    return path.partition(".")[0], path.rpartition(".")[2]


def _shipped(name: str) -> Shipped:
    if name not in SHIPPED:
        raise InputError(f"There is no framework {name!r} here. Possible: {', '.join(SHIPPED)}.")
    return SHIPPED[name]
