"""Assertions of the contract tests."""

from __future__ import annotations

from collections.abc import Callable


def require(condition: bool, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds; unlike `assert`, also under python -O."""
    if not condition:
        raise AssertionError(message)


def require_raises(
    action: Callable[[], object], message: str, expected: type[Exception] | tuple[type[Exception], ...] = Exception
) -> None:
    """Raise AssertionError with the message unless the action raises an expected error."""
    try:
        action()
    except expected:
        return
    raise AssertionError(message)
