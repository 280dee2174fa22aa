"""Run a function at the first batch size that does not run out of memory, like accelerate's decorator of that name.

This is the only place that catches out-of-memory errors in your own process, and therefore the less reliable way: what
a failed attempt leaves behind can make sizes fail that would fit, and sizes between two attempts are never tried. Code
with `from accelerate.utils import find_executable_batch_size` only needs to change the import. There are three
differences: every call starts at `starting_batch_size` again (accelerate continues from the size of the previous call),
each retry gives a warning, and failed allocations of every back end are recognised, including oneDNN.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from batchlab.core.frameworks import SHIPPED, load_framework
from batchlab.core.out_of_memory import as_out_of_memory
from batchlab.words.capacity_reasons import retry_warning

P = ParamSpec("P")
R = TypeVar("R")

REDUCTION = 0.9


@overload
def find_executable_batch_size(
    function: Callable[Concatenate[int, P], R],
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Callable[P, R]: ...


@overload
def find_executable_batch_size(
    function: None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Callable[[Callable[Concatenate[int, P], R]], Callable[P, R]]: ...


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Callable[..., Any]:
    """Decorator, with or without arguments: call `function(batch_size, …)`, again with less where memory ran out.

    function: takes the batch size as its first argument, which callers omit.
    starting_batch_size: of the first attempt of every call; each later one has int(0.9 · size).
    reduce_batch_size_fn: called without arguments after running out of memory; returns the next size instead.

    Raises RuntimeError when the size reaches zero, TypeError when a caller passes a batch size, and whatever else
    `function` raises.
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    wrapped = function

    @functools.wraps(wrapped)
    def with_batch_size(*args: Any, **kwargs: Any) -> Any:
        _require_no_batch_size(wrapped, args)
        size, failure = starting_batch_size, None
        while size > 0:
            _clear_caches()
            try:
                return wrapped(size, *args, **kwargs)
            except Exception as error:
                if (failure := as_out_of_memory(error)) is None:
                    raise
            failed, size = size, int(size * REDUCTION) if reduce_batch_size_fn is None else reduce_batch_size_fn()
            warnings.warn(retry_warning(wrapped.__name__, failed, size), stacklevel=2)
        _clear_caches()
        raise RuntimeError("No executable batch size found, reached zero.") from failure

    return with_batch_size


def _require_no_batch_size(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(args) + 1 > len(names):
        rest = ", ".join(f"{name}={value!r}" for name, value in zip(names[1:], args[1:], strict=False))
        raise TypeError(
            f"Batch size was passed into `{function.__name__}` as the first argument when called. "
            f"Remove this as the decorator already does so: `{function.__name__}({rest})`"
        )


def _clear_caches() -> None:
    """Free the caches of the process's accelerator, if any. A framework that was never imported has none."""
    for name, shipped in SHIPPED.items():
        if shipped.library in sys.modules:
            load_framework(name).release_memory()
