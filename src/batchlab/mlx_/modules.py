"""A model's modules: their names, their mode, and what each call of one was given and returned.

MLX has no hooks, so the classes of the modules are changed while calls are observed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten


class Call(NamedTuple):
    """A call of a module that has ended."""

    name: str
    module: nn.Module
    inputs: list[Any]
    output: Any


def named_modules(model: nn.Module, name: str = "") -> dict[str, nn.Module]:
    """The model (as "") and all modules in it by their paths, parents first, in the order of their attributes.

    `nn.Module.named_modules` gives the last ones first. A module that is used twice has its first name.
    """
    found = {name: model}
    for path, child in tree_flatten(model.children(), is_leaf=nn.Module.is_module):
        for inner, module in named_modules(child, f"{name}.{path}" if name else path).items():
            if not any(module is one for one in found.values()):
                found[inner] = module
    return found


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Inside the context, no module trains; afterwards each is as it was."""
    modes = [(module, module.training) for module in named_modules(model).values()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:  # parents first, because each sets those below it
            module.train(training)


@contextmanager
def observed_calls(model: nn.Module, ended: Callable[[Call], None]) -> Iterator[list[tuple[str, nn.Module]]]:
    """Inside the context, `ended` gets every call of a module of the model. Yields those that run, outermost first.

    What a person compiled runs uncompiled meanwhile, because arrays inside a compiled function have no values.
    """
    modules = {name: module for name, module in named_modules(model).items() if callable(module)}
    names = {id(module): name for name, module in modules.items()}
    originals = {cls: cls.__call__ for cls in {type(module) for module in modules.values()}}
    running: list[tuple[str, nn.Module]] = []

    def noted(original: Any) -> Any:
        def call(module: nn.Module, *arguments: Any, **named: Any) -> Any:
            name = names.get(id(module))
            if name is None or (running and running[-1][1] is module):  # another's, or the class it is derived from
                return original(module, *arguments, **named)
            running.append((name, module))
            try:
                output = original(module, *arguments, **named)
            finally:
                running.pop()
            ended(Call(name, module, [*arguments, *named.values()], output))
            return output

        return call

    for cls, original in originals.items():
        cls.__call__ = noted(original)
    try:
        with _uncompiled():
            yield running
    finally:
        for cls, original in originals.items():
            cls.__call__ = original


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Compiled functions run as they were written; compilation is as it was afterwards."""
    with contextlib.ExitStack() as after:
        if _compiles():
            mx.disable_compile()
            after.callback(mx.enable_compile)
        yield


def _compiles() -> bool:
    """Whether `mx.compile` has an effect, which MLX does not tell: a compiled function runs once for two calls."""
    runs = 0

    def counted(x: mx.array) -> mx.array:
        nonlocal runs
        runs += 1
        return x + 1

    probe = mx.compile(counted)
    for _ in range(2):
        probe(mx.array(0.0))
    return runs == 1
