from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.words.figures.curves import (
    clipped_shares,
    gradients_caption,
    size_and_rate,
    training_caption,
    validation_caption,
)

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


def clipping(found: Findings, shares: dict[int, float]) -> Findings:
    """The study whose runs of a size had this share of their steps clipped."""
    surface = found.surface
    assert surface is not None
    rows = []
    for row in surface.rows:
        assert row.best is not None
        runs = tuple(replace(run, clipped_fraction=shares.get(row.global_batch_size)) for run in row.best.runs)
        rows.append(replace(row, best=replace(row.best, runs=runs)))
    return replace(found, surface=replace(surface, rows=tuple(rows)))


def test_captions_say_n_sizes_and_what_is_cut(found: Findings) -> None:
    said = validation_caption(found, 11, 5, cut=True)
    assert said.startswith("11 runs, one line per batch size at the best learning rate tried (5 sizes).")
    assert said.endswith(" The start of the fall is above the plot.")
    assert "above the plot" not in validation_caption(found, 11, 5, cut=False)


def test_warmup_is_a_share_of_the_budget_or_absent(found: Findings) -> None:
    assert "the first 10 % of the budget" in training_caption(found, 5, 5, 80, 0.1, cut=False)
    assert "over at most 80 intervals per run" in training_caption(found, 5, 5, 80, 0.1, cut=False)
    assert "There is no warm-up." in training_caption(found, 5, 5, 80, 0.0, cut=False)


def test_clipped_shares_are_a_range_over_sizes(found: Findings) -> None:
    assert clipped_shares(clipping(found, {})) == "an unknown share of the steps"
    assert clipped_shares(clipping(found, {4: 0.25, 8: 0.25})) == "25 % of the steps at 2 sizes"
    shares = clipped_shares(clipping(found, {4: 0.08, 8: 0.2, 64: 0.31}))
    assert shares == "8 % (batch 4) to 31 % (batch 64) of the steps"
    assert gradients_caption(clipping(found, {4: 0.25}), 5).endswith("1, which clipped 25 % of the steps at 1 size.")


def test_curves_are_named_by_size_and_rate() -> None:
    assert size_and_rate(1024, 3e-4) == "1,024 (3.0e-4)"
