"""What a rank other than the first may do besides computing: read. Rank 0 writes, and speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

from batchlab.core.protocols import RunContext, WriteState
from batchlab.core.record import MetricRow


class Follower:
    """The `RunContext` of another rank."""

    repaired_lines = 0

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.cache_dir, self.path = context.cache_dir, context.path

    def row(self, row: MetricRow) -> None:
        """Nothing."""

    def progress(
        self, step: int, steps: int, tokens: int, train_loss: float | None, tokens_per_second: float | None
    ) -> None:
        """Nothing."""

    def save_checkpoint(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        """Nothing."""

    def load_checkpoint(self) -> tuple[dict[str, Any], BinaryIO] | None:
        """None: rank 0 sends what it has loaded."""

    def keep_end(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        """Nothing."""

    def end_of(self, run_id: str) -> tuple[dict[str, Any], BinaryIO] | None:
        """None: rank 0 sends what it has loaded."""

    def stop_requested(self) -> bool:
        """Whether this process was asked to stop: then all ranks stop."""
        return self._context.stop_requested()
