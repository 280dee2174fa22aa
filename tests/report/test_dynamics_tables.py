"""Tables of training dynamics: spikes and non-finite values of each size, sizes at equal tokens, steps and time."""

from __future__ import annotations

from collections.abc import Callable

from batchlab.analysis.findings import Findings
from batchlab.report.dynamics_tables import comparison_table, stability_table

Study = Callable[[str], Findings]


def test_stability_says_where_the_highest_spike_and_the_first_non_finite_value_are(study: Study) -> None:
    rows = [row.texts for row in stability_table(study("snapshots")).rows]
    assert rows[0][3] == "+2.979 at step 840 (215k tokens)"
    assert len(rows) == 5
    assert {row[4] for row in rows} == {"step 12: train_loss", "–"}


def test_sizes_are_compared_at_equal_tokens_steps_and_time(study: Study) -> None:
    table = comparison_table(study("whole"))
    assert [column.name.partition(" (")[0] for column in table.columns] == [
        "batch",
        "train loss at equal tokens",
        "train loss at equal steps",
        "train loss at equal time",
    ]
    assert [row.texts[0] for row in table.rows] == ["4", "8", "16", "32", "64"]
    assert not comparison_table(study("one size")).rows
