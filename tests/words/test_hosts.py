"""What is said of a machine that can take part in a study."""

from __future__ import annotations

from batchlab.words.hosts import host_line


def test_numbers_have_their_nouns() -> None:
    assert host_line(1, 0, 1) == "1 core, 0 GPUs; 1 run at a time; shares the folder and its locks"
    assert host_line(16, 2, 2).startswith("16 cores, 2 GPUs; 2 runs at a time")
