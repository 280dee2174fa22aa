"""Run a function at the first batch size that does not run out of memory, like accelerate's decorator of that name.

The one place where out of memory is caught in the person's own process, and so the lesser way: what a failed attempt
leaves behind can make sizes fail that fit, and sizes between two attempts are never tried. Code that has
`from accelerate.utils import find_executable_batch_size` needs only another import. Three differences: every call
starts at `starting_batch_size` again (accelerate goes on from the size of the call before), each retry is announced by
a warning, and every back end's failed allocations are recognised, oneDNN's too.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from batchlab.torch_.out_of_memory import as_out_of_memory

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
    """Decorator, with or without arguments: call `function(batch_size, …)`, again with less after out of memory.

    function: takes the batch size as its first argument, which callers leave out.
    starting_batch_size: of the first attempt in every call; each later one has int(0.9 · size).
    reduce_batch_size_fn: called without arguments after out of memory, returns the next size instead.
    Errors: RuntimeError when the size reaches zero, TypeError when a caller passes a batch size; whatever else
    `function` raises passes through.
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
            _warn(wrapped.__name__, failed, size)
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
    """Of the process's accelerator, if it has one. A function that never imported torch leaves nothing there."""
    if "torch" in sys.modules:
        from batchlab.torch_.memory import release_all

        release_all()


def _warn(name: str, failed: int, size: int) -> None:
    then = f"running it again at {size}" if size > 0 else "nothing smaller is left"
    warnings.warn(
        f"{name} ran out of memory at batch size {failed}; {then}. `batchlab capacity` or batchlab.find_max_batch_size "
        "finds the largest size that fits beforehand, in processes of its own and mostly without a failure.",
        stacklevel=3,
    )
