"""What batch size, and what learning rate, should I train this model with on this hardware?"""

from batchlab.task import Task, task

__version__ = "0.1.0"

__all__ = ["Task", "__version__", "task"]
