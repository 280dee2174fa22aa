"""How a contract test says which promise is broken."""

from __future__ import annotations

from collections.abc import Callable


def require(holds: bool, sentence: str) -> None:
    """AssertionError with the sentence unless it holds; unlike `assert`, also under python -O."""
    if not holds:
        raise AssertionError(sentence)


def require_raises(
    action: Callable[[], object], sentence: str, expected: type[Exception] | tuple[type[Exception], ...] = Exception
) -> None:
    """AssertionError with the sentence unless the action raises an expected error."""
    try:
        action()
    except expected:
        return
    raise AssertionError(sentence)
