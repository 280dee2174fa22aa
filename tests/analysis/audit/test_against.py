from __future__ import annotations

import pytest
from tests.analysis.audit.tables import entry, table

from batchlab.analysis.audit.against import reproduction
from batchlab.analysis.audit.table import Ending, Quantity


def test_means_over_seeds_are_compared() -> None:
    published = table(*(entry(global_batch_size=b, val_loss=2.0, peak_bytes=1e9) for b in (8, 16)))
    own = table(*(entry(global_batch_size=8, seed=s, val_loss=v) for s, v in enumerate((2.0, 2.2))))

    found = reproduction(published, own)

    assert (found.matched, found.unmatched) == (1, 1)
    (loss,) = found.numbers
    assert (loss.quantity, loss.pairs) == (Quantity.VAL_LOSS, 1)
    assert loss.furthest == pytest.approx(0.05)


def test_learning_rates_are_matched_where_both_have_them() -> None:
    published = table(*(entry(global_batch_size=8, learning_rate=r, val_loss=2.0) for r in (1e-3, 2e-3)))
    own = table(entry(global_batch_size=8, learning_rate=0.002, val_loss=2.0))

    assert reproduction(published, own).matched == 1


def test_limits_of_memory_stand_beside_each_other() -> None:
    out = Ending.OUT_OF_MEMORY
    published = table(entry(global_batch_size=192), entry(ending=out, global_batch_size=208))
    own = table(entry(global_batch_size=200), entry(ending=out, global_batch_size=201))

    found = reproduction(published, own)

    assert (found.published_limit, found.own_limit) == ((192, 208), (200, 201))
    assert not found.matched
