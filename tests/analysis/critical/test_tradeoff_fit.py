"""The posterior over time–cost curves, on the textbook curve and on published steps."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from batchlab.analysis.critical.tradeoff_fit import Credible, TradeoffFit

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"
BATCH = 2.0 ** np.arange(0, 11)
TEXTBOOK = 100 * (1 + 32 / BATCH)


def fit(steps: np.ndarray, noise_sd: float | None = 0.01) -> TradeoffFit:
    return TradeoffFit(np.log(BATCH), np.log(steps), noise_sd)


def width(found: Credible) -> float:
    return found.high / found.low


def test_the_textbook_curve_has_one_critical_batch_size() -> None:
    found = fit(TEXTBOOK)
    for definition in (found.twice_steps, found.twice_samples):
        assert definition.low < 32 < definition.high
        assert definition.median == pytest.approx(32, rel=0.08)
    assert found.more_samples(4.0, 1.2).median == pytest.approx(0.2 * 32 + 1.2 * 4, rel=0.05)
    assert found.curve.samples(64) == pytest.approx(100 * (64 + 32), rel=0.03)
    assert found.curve.s_min == pytest.approx(100, rel=0.05)
    assert found.curve.e_min == pytest.approx(3200, rel=0.05)


def test_intervals_widen_with_noise_with_misfit_and_where_a_side_was_not_measured() -> None:
    whole = fit(TEXTBOOK)
    assert width(fit(TEXTBOOK, 0.05).twice_samples) > 1.15 * width(whole.twice_samples)
    wrong = TEXTBOOK * np.exp(0.06 * (-1.0) ** np.arange(len(BATCH)))
    assert width(fit(wrong).twice_samples) > 1.15 * width(whole.twice_samples)
    small = BATCH <= 64
    without_large = TradeoffFit(np.log(BATCH[small]), np.log(TEXTBOOK[small]), 0.01)
    assert width(without_large.twice_steps) > 2 * width(whole.twice_steps)
    assert width(without_large.more_samples(1.0, 1.2)) < 1.3 * width(whole.more_samples(1.0, 1.2))


def test_published_textbook_fits_of_zhang_2024_lie_in_the_intervals_where_they_fit() -> None:
    folder = SHARED / "zhang2024_cbs"
    if not folder.is_dir():
        pytest.skip("shared/data/zhang2024_cbs is not beside this checkout")
    with (folder / "steps_to_target.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "reference_fit.csv").open() as file:
        references = list(csv.DictReader(file))
    assert len(references) == 5
    for reference in references:
        if reference["model_size"] == "151M":  # its steps leave the published curve the most, by 9 %
            continue
        table = np.array(
            [
                (float(r["batch_seqs"]), float(r["steps_fit"]))
                for r in rows
                if r["model_size"] == reference["model_size"]
            ]
        )
        found = TradeoffFit(np.log(table[:, 0]), np.log(table[:, 1]))
        overhead = found.more_samples(256, 1.2)
        assert overhead.low < float(reference["cbs_20pct_vs_bs256_seqs"]) < overhead.high
