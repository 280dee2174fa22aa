"""Contract tests for the interfaces in `batchlab.core.protocols`; run them on your own implementations.

    from batchlab.testing import check_trainable

    def test_mine() -> None:
        check_trainable(MyTrainable, batch)

Each raises AssertionError with a message that says which requirement is violated, and with which numbers.
"""

from batchlab.testing.dataset import check_dataset
from batchlab.testing.engine import check_engine
from batchlab.testing.files import check_files
from batchlab.testing.gradients import check_measured_gradients
from batchlab.testing.integration import check_integration
from batchlab.testing.ranks import check_shared_sums
from batchlab.testing.search import check_search
from batchlab.testing.tracker import check_tracker
from batchlab.testing.trainable import check_trainable

__all__ = [
    "check_dataset",
    "check_engine",
    "check_files",
    "check_integration",
    "check_measured_gradients",
    "check_search",
    "check_shared_sums",
    "check_tracker",
    "check_trainable",
]
