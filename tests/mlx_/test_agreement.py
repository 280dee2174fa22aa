"""torch and MLX compute the same: step by step from the same weights, and within the noise of seeds from their own."""

from __future__ import annotations

import json
from statistics import fmean, variance

import numpy as np
import pytest
from scipy.stats import t
from tests.mlx_.agreement import RECORD, cells, steps

RECORDED = json.loads(RECORD.read_text())


def test_the_record_is_what_torch_computes() -> None:
    pytest.importorskip("torch", reason="needs torch")
    np.testing.assert_allclose(steps("torch"), RECORDED["steps"], rtol=1e-5)


@pytest.mark.mlx
def test_fifty_steps_agree() -> None:
    pytest.importorskip("mlx.core", reason="needs MLX: make test-mlx")
    ours, theirs = np.array(steps("mlx")), np.array(RECORDED["steps"])
    largest = np.abs(ours / np.where(theirs, theirs, 1) - 1)[theirs != 0].max()
    print(f"largest relative difference of loss and gradient norm over {len(ours) - 1} steps: {largest:.1e}")
    assert largest <= 1e-4


@pytest.mark.mlx
def test_no_cell_of_a_small_sweep_differs_beyond_its_interval() -> None:
    """Two samples per cell with the variance of all cells, 95 % for all comparisons together (Bonferroni)."""
    pytest.importorskip("mlx.core", reason="needs MLX: make test-mlx")
    ours, theirs = cells("mlx"), RECORDED["cells"]
    assert ours.keys() == theirs.keys()
    samples = [*ours.values(), *theirs.values()]
    freedom = sum(len(one) - 1 for one in samples)
    pooled = sum(variance(one) * (len(one) - 1) for one in samples) / freedom
    for cell, losses in ours.items():
        error = (pooled * (1 / len(losses) + 1 / len(theirs[cell]))) ** 0.5
        interval = float(t.ppf(1 - 0.025 / len(ours), freedom)) * error
        difference = fmean(losses) - fmean(theirs[cell])
        print(f"batch {cell}: MLX − torch {difference:+.4f} ± {interval:.4f}")
        assert abs(difference) <= interval, cell
