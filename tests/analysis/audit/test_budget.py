from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.audit.tables import clean_sweep, entry, table

from batchlab.analysis.audit.budget import budget_flaws
from batchlab.analysis.audit.flaw import (
    BatchDisagrees,
    EqualSteps,
    StepsInconsistent,
    TokensDisagree,
    TooFewSteps,
    UnequalTokens,
    WarmupSharesDiffer,
)
from batchlab.analysis.audit.table import Entry, Quantity


def without(row: Entry, *quantities: Quantity) -> Entry:
    return replace(row, numbers={key: value for key, value in row.numbers.items() if key not in quantities})


def test_a_clean_sweep_has_no_flaw() -> None:
    assert not list(budget_flaws(table(*clean_sweep())))


def test_logged_rows_taken_for_updates() -> None:
    rows = [
        entry(global_batch_size=1, sequence_length=256, steps=25_701, tokens=327_680_000),
        entry(global_batch_size=8, sequence_length=256, steps=3_301, tokens=327_680_000),
    ]

    (flaw,) = budget_flaws(table(*rows))

    assert isinstance(flaw, TokensDisagree)
    assert flaw.lines == (2, 3)
    assert flaw.ratio == pytest.approx((48.47, 49.80), rel=1e-3)


@pytest.mark.parametrize("off", [0.98, 1.0, 1.02])
def test_rounded_tokens_are_no_flaw(off: float) -> None:
    rows = [entry(global_batch_size=b, sequence_length=128, steps=8192 // b, tokens=off * 2**20) for b in (8, 32)]

    assert not list(budget_flaws(table(*rows)))


def test_equal_steps_are_not_equal_tokens() -> None:
    rows = [entry(global_batch_size=b, steps=1000, val_loss=2.0) for b in (8, 16, 64)]

    (flaw,) = budget_flaws(table(*rows))

    assert flaw == EqualSteps((2, 3, 4), 1000, 8, 64, 8)


def test_steps_that_do_not_fall_with_the_batch_size() -> None:
    rows = [entry(global_batch_size=8, steps=1000), entry(global_batch_size=64, steps=500)]

    (flaw,) = budget_flaws(table(*rows))

    assert isinstance(flaw, StepsInconsistent)
    assert (flaw.fewest, flaw.most, flaw.factor) == ((8, 1000), (64, 500), 4)


def test_unequal_tokens() -> None:
    rows = [entry(global_batch_size=b, tokens=tokens) for b, tokens in ((8, 1e6), (16, 1e6), (32, 2e6))]

    (flaw,) = budget_flaws(table(*rows))

    assert isinstance(flaw, UnequalTokens)
    assert flaw.factor == 2


def test_budgets_that_several_sizes_share_are_compared_apart() -> None:
    rows = [entry(global_batch_size=b, tokens=t) for t in (1e6, 4e6) for b in (8, 16)]

    assert not list(budget_flaws(table(*rows)))
    assert len(table(*rows).groups) == 2


def test_the_product_of_the_layout() -> None:
    right = entry(micro_batch_size=4, grad_accum_steps=2, data_parallel_size=2, global_batch_size=16)
    wrong = entry(micro_batch_size=4, grad_accum_steps=4, data_parallel_size=2, global_batch_size=16)

    (flaw,) = budget_flaws(table(right, wrong))

    assert flaw == BatchDisagrees((3,), 32, 16)


def test_warmup_is_compared_as_a_share_of_the_updates() -> None:
    rows = [
        entry(global_batch_size=b, sequence_length=256, tokens=2**24, warmup_steps=w) for b, w in ((8, 82), (64, 41))
    ]

    (flaw,) = budget_flaws(table(*rows))

    assert isinstance(flaw, WarmupSharesDiffer)
    assert flaw.most[0] == 64
    assert flaw.most[1] == pytest.approx(0.04, rel=0.01)


def test_a_rounded_warmup_step_is_no_flaw() -> None:
    rows = [entry(global_batch_size=b, steps=s, warmup_steps=w) for b, s, w in ((8, 1000, 10), (512, 16, 1))]

    assert not [flaw for flaw in budget_flaws(table(*rows)) if isinstance(flaw, WarmupSharesDiffer)]


def test_too_few_steps() -> None:
    rows = [entry(global_batch_size=b, steps=1280 // b, val_loss=2.0) for b in (8, 64)]

    (flaw,) = budget_flaws(table(*rows))

    assert isinstance(flaw, TooFewSteps)
    assert flaw.lines == (3,)


def test_without_tokens_the_steps_are_believed() -> None:
    rows = [without(row, Quantity.TOKENS) for row in clean_sweep()]

    assert not list(budget_flaws(table(*rows)))
