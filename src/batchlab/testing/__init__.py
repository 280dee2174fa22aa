"""Contract tests for the seams: run them on an implementation of your own, as batchlab's tests do on each of its own.

    from batchlab.testing import check_trainable

    def test_mine() -> None:
        check_trainable(MyTrainable, batch)

Each raises AssertionError with a sentence that says which promise of `batchlab.protocols` is broken, and with which
numbers.
"""

from batchlab.testing.dataset import check_dataset
from batchlab.testing.engine import check_engine
from batchlab.testing.gradients import check_measured_gradients
from batchlab.testing.search import check_search
from batchlab.testing.tracker import check_tracker
from batchlab.testing.trainable import check_trainable

__all__ = [
    "check_dataset",
    "check_engine",
    "check_measured_gradients",
    "check_search",
    "check_tracker",
    "check_trainable",
]
