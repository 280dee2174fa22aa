from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.audit.tables import clean_sweep, entry, table

from batchlab.analysis.audit.flaw import (
    BestAtEdge,
    Contradiction,
    Flaw,
    LearningRateNotTuned,
    NoLoss,
    OneSeed,
    TrainBelowValidation,
    TrainingLossJudged,
    WithinNoise,
)
from batchlab.analysis.audit.losses import loss_flaws
from batchlab.analysis.audit.table import Entry, Quantity


def found(*entries: Entry) -> list[Flaw]:
    return list(loss_flaws(table(*entries)))


def test_a_clean_sweep_has_no_flaw() -> None:
    assert not found(*clean_sweep())


def test_one_learning_rate_for_all_sizes() -> None:
    rows = [row for row in clean_sweep() if row.numbers[Quantity.LEARNING_RATE] == 2e-3]

    (flaw,) = found(*rows)

    assert isinstance(flaw, LearningRateNotTuned)
    assert (flaw.sizes, flaw.learning_rate) == (4, 2e-3)


def test_one_learning_rate_for_each_size_may_have_been_tuned() -> None:
    rows = [entry(global_batch_size=b, learning_rate=1e-3 * b, val_loss=2 + abs(b - 16) / 99) for b in (8, 16, 32)]

    assert not [flaw for flaw in found(*rows) if isinstance(flaw, LearningRateNotTuned)]


def test_the_edge_of_the_batch_sizes() -> None:
    rows = [row for row in clean_sweep() if row.numbers[Quantity.GLOBAL_BATCH_SIZE] >= 16]

    (flaw,) = found(*rows)

    assert isinstance(flaw, BestAtEdge)
    assert (flaw.axis, flaw.side, flaw.value) == ("batch", "low", 16)


def test_the_edge_of_the_learning_rates_counts_at_the_best_size() -> None:
    rows = [
        entry(global_batch_size=b, learning_rate=r, seed=s, val_loss=2 + abs(b - 16) / 50 - 10 * r + s / 1000)
        for b in (8, 16, 32)
        for r in (1e-3, 2e-3, 4e-3)
        for s in range(2)
    ]

    (flaw,) = found(*rows)

    assert isinstance(flaw, BestAtEdge)
    assert (flaw.axis, flaw.side, flaw.value, flaw.batch) == ("learning_rate", "high", 4e-3, 16)


def test_one_seed() -> None:
    (flaw,) = found(*clean_sweep(seeds=1))

    assert isinstance(flaw, OneSeed)
    assert flaw.gap == pytest.approx(0.0125)  # batch 8 at 2.025 against batch 16 at 2.0


def test_two_sizes_within_noise() -> None:
    rows = [
        entry(global_batch_size=b, seed=s, val_loss=loss + spread)
        for b, loss in ((8, 2.2), (16, 2.00), (32, 2.01), (64, 2.2))
        for s, spread in enumerate((-0.02, 0.0, 0.02))
    ]

    (flaw,) = found(*rows)

    assert isinstance(flaw, WithinNoise)
    assert (flaw.best, flaw.other, flaw.seeds) == (16, 32, 3)
    # t(0.975, 8) × 0.02 × √(2/3)
    assert abs(flaw.half_width - 2.306 * 0.02 * (2 / 3) ** 0.5) < 1e-4


def test_rows_that_contradict_each_other() -> None:
    rows = clean_sweep()
    again = replace(rows[0], numbers={**rows[0].numbers, Quantity.VAL_LOSS: 3.0})

    assert Contradiction in {type(flaw) for flaw in found(*rows, again)}


def test_a_row_that_is_listed_twice_is_one_run() -> None:
    once = clean_sweep(seeds=1)

    assert [type(flaw) for flaw in found(*once, *once)] == [OneSeed]


def test_a_training_loss_is_named() -> None:
    rows = [entry(global_batch_size=b, last_loss=2 + abs(b - 16) / 50) for b in (8, 16, 32)]

    kinds = {type(flaw) for flaw in found(*rows)}

    assert kinds == {TrainingLossJudged, OneSeed}


def test_validation_below_training() -> None:
    rows = [
        entry(global_batch_size=b, seed=s, val_loss=v + s / 500, train_loss=1.9)
        for b, v in ((8, 1.85), (16, 1.8), (32, 2.0))
        for s in range(2)
    ]

    (flaw,) = found(*rows)

    assert isinstance(flaw, TrainBelowValidation)
    assert (flaw.batch, round(flaw.gap, 6)) == (16, -0.1)


def test_a_completed_row_without_loss() -> None:
    assert NoLoss in {type(flaw) for flaw in found(*clean_sweep(), entry(global_batch_size=8, steps=10))}
