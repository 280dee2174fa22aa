"""What is inferred of cells that were not run, and how much work that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pytest
from tests.analysis.sweep.trained import trained

from batchlab.analysis.sweep import inferred
from batchlab.analysis.sweep.inferred import MOST, SEEDS, inferred_cells
from batchlab.analysis.sweep.loss_surface import surface_finding
from batchlab.analysis.values import BatchRow, Run
from batchlab.search.trial import Trial, TrialOutcome

RATES = (1e-3, 2e-3, 4e-3, 8e-3)


def rows(runs: Iterable[Run]) -> tuple[BatchRow, ...]:
    runs = list(runs)
    surface = surface_finding(runs, sorted({one.global_batch_size for one in runs}))
    assert surface is not None
    return surface.rows


def valley(size: int, rate: float) -> float:
    return 2 + 0.1 * math.log2(rate / 2e-3) ** 2 + 0.05 * abs(math.log2(size / 16))


def test_what_was_not_run_is_inferred_from_what_was() -> None:
    skipped = (16, 4e-3)
    (one,) = inferred_cells(
        rows(
            trained(size, rate, valley(size, rate)) for size in (8, 16, 32) for rate in RATES if (size, rate) != skipped
        )
    )
    assert (one.global_batch_size, one.learning_rate) == skipped
    assert one.val_loss == pytest.approx(valley(*skipped), rel=0.02)


def test_nothing_is_inferred_above_a_divergence_or_from_too_few_cells() -> None:
    assert inferred_cells(rows([trained(8, 1e-3, 2.0), trained(8, 2e-3, 1.9), trained(16, 4e-3, 2.0)])) == ()
    diverged = [
        *(trained(size, rate, valley(16, rate)) for size in (8, 32) for rate in RATES),
        trained(16, 1e-3, 2.1),
        trained(16, 2e-3, None),
    ]
    assert all(cell.learning_rate < 2e-3 for cell in inferred_cells(rows(diverged)) if cell.global_batch_size == 16)


@pytest.mark.parametrize("seeds", [1, 60])
def test_the_work_is_bounded_and_what_is_nearest_is_used(monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    given: list[Mapping[Trial, TrialOutcome]] = []

    def infer(outcomes: Mapping[Trial, TrialOutcome], sizes: list[int], rates: list[float]) -> object:
        given.append(outcomes)
        return [2.0] * len(sizes), [0.1] * len(sizes)

    monkeypatch.setattr(inferred, "infer", infer)
    rates = [1e-4 * 1.05**i for i in range(100)]
    skipped = (16, rates[50])
    study = [
        trained(size, rate, valley(size, rate), seed)
        for size in (8, 16, 32)
        for rate in rates
        for seed in range(seeds)
        if (size, rate) != skipped
    ]
    lost = trained(8, 1.0, None)
    assert inferred_cells(rows([*study, lost]))
    (outcomes,) = given
    finite = [trial for trial, outcome in outcomes.items() if outcome.finite]
    assert MOST <= len(finite) < MOST + SEEDS
    assert Trial(8, 1.0, 0) in outcomes
    for rate in (rates[49], rates[51]):
        assert Trial(16, rate, 0) in finite
    for row in rows(study):
        assert row.best is not None
        assert Trial(row.global_batch_size, row.best.learning_rate, 0) in finite
