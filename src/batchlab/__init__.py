"""What batch size, and what learning rate, should I train this model with on this hardware?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchlab.core.task import Task, task

if TYPE_CHECKING:
    from batchlab.executable_batch_size import find_executable_batch_size
    from batchlab.max_batch_size import find_max_batch_size
    from batchlab.observation import observe

__version__ = "0.1.0"

__all__ = ["Task", "__version__", "find_executable_batch_size", "find_max_batch_size", "observe", "task"]

_LAZY = {
    "find_executable_batch_size": "batchlab.executable_batch_size",
    "find_max_batch_size": "batchlab.max_batch_size",
    "observe": "batchlab.observation",
}


def __getattr__(name: str) -> Any:
    """Import lazily what a task file does not need."""
    if name not in _LAZY:
        raise AttributeError(f"module 'batchlab' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
