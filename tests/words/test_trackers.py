from __future__ import annotations

from pathlib import Path

from batchlab.words.trackers import tracker_dropped


def test_a_dropped_tracker_is_named_with_its_error_and_the_remedy() -> None:
    text = tracker_dropped("wandb", ConnectionError("the service is gone"), Path("study"))
    assert "wandb failed" in text
    assert "ConnectionError: the service is gone" in text
    assert text.endswith("batchlab mirror study --to wandb")
