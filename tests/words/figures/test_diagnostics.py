from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.words.figures import diagnostics
from batchlab.words.figures.diagnostics import (
    PHASE_NAMES,
    SAME_STEPS,
    Text,
    heads_caption,
    phases_caption,
    snapshots_caption,
)

Study = Callable[..., Any]


def test_every_plot_says_in_sentences_what_to_look_for() -> None:
    texts = [text for text in vars(diagnostics).values() if isinstance(text, Text)]
    assert len({text.title for text in texts}) == len(texts) == 8
    assert all(text.look_for.endswith(".") for text in texts)
    assert all(not text.plotted or text.plotted.endswith(".") for text in texts)


def test_captions_give_runs_and_steps(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    found = replace(found, diagnostics=replace(found.diagnostics, snapshots=(1024, 2048, 4096)))
    assert snapshots_caption(found, SAME_STEPS, 5).endswith(
        "n = 5 runs, one per batch size at the best learning rate tried, read at up to 3 steps that end at the same "
        "numbers of tokens."
    )
    assert heads_caption("blocks.2", 1024) == "blocks.2, in nats, n = 1 run: batch 1,024 at its best learning rate."


def test_phases_are_shares() -> None:
    assert phases_caption([4, 8]).startswith("Shares of the medians")
    assert "n = 2 runs at batch 4 and 8." in phases_caption([4, 8])
    assert list(PHASE_NAMES) == ["data", "forward", "backward", "optimizer"]
