from __future__ import annotations

import inspect

import pytest
from tests.analysis.audit.tables import clean_sweep, entry, table

from batchlab.analysis.audit import flaw
from batchlab.analysis.audit.against import reproduction
from batchlab.analysis.audit.audit import audit_table
from batchlab.analysis.audit.flaw import Flaw, OneSeed, TokensDisagree
from batchlab.analysis.audit.table import Ending, Entry, Quantity, SweepTable
from batchlab.words.audit import (
    audit_notes,
    describe_reproduction,
    describe_setting,
    describe_supported,
    describe_unchecked,
    describe_verdict,
)
from batchlab.words.audit_flaws import describe_flaw

EXAMPLES: dict[str, Flaw] = {
    "TokensDisagree": TokensDisagree((2,), 25_701, 256, 327_680_000, (39.7, 49.8)),
    "StepsInconsistent": flaw.StepsInconsistent((2,), (8, 1000), (64, 500), 4),
    "EqualSteps": flaw.EqualSteps((2,), 1000, 8, 64, 8),
    "UnequalTokens": flaw.UnequalTokens((2,), (8, 1e6), (16, 2e6), 2),
    "BatchDisagrees": flaw.BatchDisagrees((2,), 32, 16),
    "BeyondMemory": flaw.BeyondMemory((2,), 28.49 * 2**30, 15.99 * 2**30),
    "OptimizerStateWrong": flaw.OptimizerStateWrong((2,), "adam", 2, 182e6, 273e6),
    "Contradiction": flaw.Contradiction((2, 3), 8, (2.0, 3.0)),
    "LearningRateNotTuned": flaw.LearningRateNotTuned((2,), 6, 3e-4),
    "BestAtEdge": flaw.BestAtEdge((2,), "batch", "low", 1),
    "WarmupSharesDiffer": flaw.WarmupSharesDiffer((2, 3), (1, 0.01), (256, 0.02)),
    "TooFewSteps": flaw.TooFewSteps((2,), 20, 50),
    "OneSeed": OneSeed((2,), 6, 0.05),
    "WithinNoise": flaw.WithinNoise((2,), 16, 32, 0.01, 0.04, 3),
    "TrainingLossJudged": flaw.TrainingLossJudged((2,), Quantity.LAST_LOSS),
    "TrainBelowValidation": flaw.TrainBelowValidation((2,), 8, -0.03),
    "LargerIsSlower": flaw.LargerIsSlower((2, 3), 128, 256, 5.3),
    "GapBelowMemoryLimit": flaw.GapBelowMemoryLimit((2, 3), 192, 208),
    "NoOptimizerInMemory": flaw.NoOptimizerInMemory((2,), 3e8),
    "NoLoss": flaw.NoLoss((2,)),
}


def test_there_is_an_example_of_every_kind() -> None:
    kinds = {name for name, kind in inspect.getmembers(flaw, inspect.isclass) if issubclass(kind, Flaw)} - {"Flaw"}

    assert set(EXAMPLES) == kinds


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_kind_is_told_in_sentences(kind: str) -> None:
    texts = describe_flaw(EXAMPLES[kind])

    assert all(text.endswith(".") and "  " not in text and "None" not in text for text in texts)


def test_the_arithmetic_is_shown() -> None:
    _, arithmetic, _ = describe_flaw(EXAMPLES["TokensDisagree"])

    assert arithmetic == "25,701 steps × 256 tokens = 6.58M, but 328M are stated, 39.7 to 49.8 times as many."


def test_both_axes_have_an_edge() -> None:
    what, arithmetic, remedy = describe_flaw(flaw.BestAtEdge((2,), "learning_rate", "high", 4e-3, 16))

    assert what == "At the best batch size the highest learning rate was the best."
    assert (arithmetic, remedy) == (
        "At batch 16 it is 4.0e-3, with nothing tried beyond it.",
        "Try a higher learning rate there.",
    )


def test_what_holds_of_several_groups_is_told_once() -> None:
    rows = [entry(global_batch_size=b, tokens=t, val_loss=2 + b / 99) for t in (1e6, 4e6, 9e6) for b in (8, 16)]

    (note,) = audit_notes(audit_table(table(*rows)))

    assert note.kind == "OneSeed"
    assert note.arithmetic.endswith("The same holds for 2 other groups of rows.")
    assert note.where == "lines 2, 3, 4, 5, 6 and 7"


def test_the_verdict() -> None:
    assert describe_verdict(audit_table(table(*clean_sweep()))).startswith("24 rows: nothing found")
    one = describe_verdict(audit_table(table(*clean_sweep(seeds=1))))
    assert one == "12 rows, 1 note: the numbers agree with each other."


def test_what_the_table_shows() -> None:
    (supported,) = audit_table(table(*clean_sweep())).supported

    assert describe_supported(supported) == "Lowest loss of 4 batch sizes: 2.001 at batch 16, LR 2.0e-3, 2 runs."
    assert describe_setting(supported) == ""


def test_what_is_reproduced() -> None:
    published = table(entry(global_batch_size=8, val_loss=2.0), entry(global_batch_size=16, val_loss=2.0))
    own = table(entry(global_batch_size=8, val_loss=2.0), entry(global_batch_size=16, val_loss=1.9))

    assert describe_reproduction(reproduction(published, own)) == (
        "val loss: −2.5 % in the median of 2 configurations, at most −5 % (batch 16).",
        "Largest batch size: published 16 ran; here 16 ran.",
    )


def test_what_was_not_checked_is_told_with_the_names_to_give() -> None:
    row = Entry(2, {Quantity.STEPS: 10.0}, {}, Ending.COMPLETED)
    told = describe_unchecked(SweepTable("t", (row,)))
    assert told.startswith("steps against tokens (tokens, sequence_length); learning rates (learning_rate); memory")
    assert "--given NAME=VALUE" in told
