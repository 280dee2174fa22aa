"""The noise scale from the best learning rate of single steps, against the published MNIST experiment."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from batchlab.analysis.critical.optimal_step import best_step, fit_optimal_step
from batchlab.core.errors import InputError

MNIST = Path(__file__).parents[3] / ".." / "shared" / "data" / "mnist_noise_scale"


@pytest.mark.parametrize(("checkpoint", "noise", "error"), [("100", 49.8, 4.3), ("500", 150.5, 15.4)])
def test_one_step_experiment_on_mnist(checkpoint: str, noise: float, error: float) -> None:
    if not MNIST.is_dir():
        pytest.skip("shared/data/mnist_noise_scale is not beside this checkout")
    changes: dict[float, dict[float, float]] = {}
    with (MNIST / "aggregate_results.csv").open() as file:
        for row in csv.DictReader(file):
            if row["checkpoint_step"] == checkpoint:
                changes.setdefault(float(row["batch_size"]), {})[float(row["epsilon"])] = float(row["mean_loss_change"])
    steps = {batch: best_step(list(curve), list(curve.values())) for batch, curve in changes.items()}
    found = fit_optimal_step(list(steps), [step for step in steps.values() if step is not None])
    assert found.noise_scale.value == pytest.approx(noise, abs=0.05)
    assert found.noise_scale_error == pytest.approx(error, abs=0.05)


def test_best_step_at_an_end_is_not_bracketed() -> None:
    assert best_step([1, 2, 3], [3, 2, 1]) is None
    assert best_step([1, 2, 4, 8], [(x - 3) ** 2 for x in (1, 2, 4, 8)]) == pytest.approx(3)


def test_optimal_step_refuses_what_shows_no_noise_scale() -> None:
    with pytest.raises(InputError, match="does not grow"):
        fit_optimal_step([1, 2, 4, 8, 16], [5, 4, 3, 2, 1])
    with pytest.raises(InputError, match="at least 4"):
        fit_optimal_step([1, 2, 4], [1, 2, 3])
    exact = fit_optimal_step([1, 4, 16, 64, 256], [0.3 / (1 + 20 / b) for b in (1, 4, 16, 64, 256)])
    assert (exact.largest.value, exact.noise_scale.value) == pytest.approx((0.3, 20))
