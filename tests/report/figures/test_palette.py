"""The two colour schemes."""

from __future__ import annotations

from batchlab.report.figures.palette import THEMES


def test_both_themes_name_the_same_colours() -> None:
    assert set(THEMES["light"]) == set(THEMES["dark"])
