"""The time–cost curve: its profile, and published fits."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from batchlab.analysis.critical.hyperbola import Profile, fit_hyperbola

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"


def doublings(first: int, last: int) -> list[float]:
    return [2.0**i for i in range(first, last + 1)]


def test_profile_limits_lie_where_the_threshold_is_crossed() -> None:
    b = np.array(doublings(0, 6))
    rng = np.random.default_rng(1)
    profile = Profile(b, np.log(100 * (1 + 10 / b)) + 0.05 * rng.standard_normal(7))
    assert profile.b_crit.low is not None
    assert profile.b_crit.high is not None
    for limit in (profile.b_crit.low, profile.b_crit.high):
        assert profile.squares(np.array([math.log(limit)]))[0] == pytest.approx(profile.threshold, rel=1e-6)
    around = profile.squares(profile.best + np.array([-1e-3, 1e-3]))
    assert np.all(around >= profile.least)


def test_published_fits_of_zhang_2024() -> None:
    folder = SHARED / "zhang2024_cbs"
    if not folder.is_dir():
        pytest.skip("shared/data/zhang2024_cbs is not beside this checkout")
    with (folder / "steps_to_target.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "reference_fit.csv").open() as file:
        references = list(csv.DictReader(file))
    assert len(references) == 5
    for reference in references:
        table = [
            (float(r["batch_seqs"]), float(r["steps_fit"])) for r in rows if r["model_size"] == reference["model_size"]
        ]
        fit = fit_hyperbola(*np.array(table).T)
        assert fit.s_min == pytest.approx(float(reference["a_min_steps"]), rel=1e-4)
        assert fit.b_crit == pytest.approx(float(reference["b_over_a_seqs"]), rel=1e-4)
        assert 1.2 * 256 + 0.2 * fit.b_crit == pytest.approx(float(reference["cbs_20pct_vs_bs256_seqs"]), rel=1e-4)
