"""The noise scale of sign updates, on gradients whose true value is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from batchlab.analysis.critical.sign_noise_scale import (
    SignNoiseReason,
    SignNorms,
    sign_noise_scale,
    small_sample_factor,
)
from batchlab.core.errors import InputError


@pytest.mark.parametrize("seed", [0, 1])
def test_sign_variant_brackets_its_truth(seed: int) -> None:
    rng, d = np.random.default_rng(seed), 200
    gradient = rng.standard_normal(d) * 0.2
    sd = np.exp(rng.normal(0, 0.5, d))
    truth = (sd.sum() / np.abs(gradient).sum()) ** 2
    hits, ratio = [], []
    for _ in range(250):
        g = gradient + rng.standard_normal((24, 4, d)) * sd / np.sqrt(32.0)
        mean = g.mean(axis=1)
        spread = np.sqrt(32.0 * ((g - mean[:, None]) ** 2).sum(axis=1) / 3).sum(axis=1)
        agreement = (np.sign(g[:, :3].mean(axis=1)) * g[:, 3]).sum(axis=1)
        rows = zip(spread, np.abs(mean).sum(axis=1), agreement, strict=True)
        found = sign_noise_scale([SignNorms(4, *map(float, row)) for row in rows], block_length=1)
        assert found.status == "measured"
        assert found.low is not None
        assert found.high is not None
        assert found.nearest is not None
        hits.append(found.low <= truth <= found.high)
        ratio.append(found.nearest[1] / found.nearest[0])
    assert np.mean(hits) >= 0.95
    assert 1 < np.mean(ratio) < 2


def test_sign_variant_without_a_gradient_has_no_upper_limit() -> None:
    rng, rows = np.random.default_rng(0), []
    for _ in range(20):
        g = rng.standard_normal((4, 50))
        agreement = float(np.sum(np.sign(g[:3].mean(axis=0)) * g[3]))
        rows.append(SignNorms(4, float(g.std(axis=0, ddof=1).sum()), float(np.abs(g.mean(axis=0)).sum()), agreement))
    found = sign_noise_scale(rows)
    assert (found.status, found.high, found.reason) == ("at_least", None, SignNoiseReason.SIGNS_DISAGREE)
    with pytest.raises(InputError, match="at least 2 micro-batches"):
        sign_noise_scale([SignNorms(1, 1.0, 1.0, 1.0)])
    assert sign_noise_scale([]).status == "undetermined"


def test_small_sample_factor() -> None:
    assert small_sample_factor(2) == pytest.approx(math.sqrt(2 / math.pi))
    assert small_sample_factor(200) == pytest.approx(1, abs=2e-3)
