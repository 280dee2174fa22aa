"""Estimates of the critical batch size as text."""

from __future__ import annotations

from batchlab.analysis.critical.branches import BranchFinding
from batchlab.analysis.critical.sign_noise_scale import SignNoiseScale
from batchlab.analysis.critical.steps_finding import CriticalBatch, Definition
from batchlab.analysis.values import Interval
from batchlab.words.estimates import DEFINITION, format_branches, format_critical, format_signs


def test_limits_and_intervals() -> None:
    twice = Definition.TWICE_SAMPLES
    assert DEFINITION[twice] == "B_crit (2× samples)"
    assert format_critical(CriticalBatch(twice, Interval(41.0, 28.0, 66.0, 6))) == "41 [28, 66]"
    assert format_critical(CriticalBatch(twice, None, at_least=28.0)) == "at least 28"
    assert format_critical(CriticalBatch(twice, None, at_most=66.0)) == "at most 66"
    assert format_critical(CriticalBatch(twice, None)) == format_critical(None) == "cannot tell"


def test_brackets() -> None:
    counts = (20, 0, 7)
    assert format_signs(None) == "–"
    assert format_signs(SignNoiseScale("measured", 28.0, 66.0, (30.0, 60.0), *counts)) == "28 – 66"
    assert format_signs(SignNoiseScale("at_least", 28.0, None, None, *counts)) == "at least 28"
    assert format_signs(SignNoiseScale("undetermined", None, None, None, *counts)) == "undetermined"


def test_branches_are_bounded_by_sizes_that_were_run() -> None:
    found = BranchFinding("found", 8, 100.0, 4, 32.0, 64.0, 0.01, ())
    assert format_branches(found) == "at least 32 and below 64"
    assert format_branches(BranchFinding("below", 8, 100.0, 1, None, 16.0, 0.01, ())) == "below 16"
    assert format_branches(BranchFinding("cannot_tell", 8, 100.0, 1, None, None, 0.01, ())) == "cannot tell"
