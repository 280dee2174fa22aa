from __future__ import annotations

import pytest

from batchlab.analysis.audit.table import Quantity
from batchlab.audit.columns import NAMES, columns_of, recognise
from batchlab.core.errors import InputError


@pytest.mark.parametrize(
    ("name", "quantity", "unit"),
    [
        ("batch_size", Quantity.GLOBAL_BATCH_SIZE, 1),
        ("Final Val Loss", Quantity.VAL_LOSS, 1),
        ("Training Time (hours)", Quantity.SECONDS, 3600),
        ("training_time_hours", Quantity.SECONDS, 3600),
        ("peak_gib", Quantity.PEAK_BYTES, 2**30),
        ("Peak Memory (GB)", Quantity.PEAK_BYTES, 1e9),
        ("Batch Size (tokens)", Quantity.TOKENS_PER_STEP, 1),
        ("perDeviceTrainBatchSize", Quantity.MICRO_BATCH_SIZE, 1),
        ("hours", Quantity.SECONDS, 3600),
    ],
)
def test_common_names(name: str, quantity: Quantity, unit: float) -> None:
    column = recognise(name)

    assert column is not None
    assert (column.quantity, column.unit) == (quantity, unit)


def test_every_quantity_is_recognised_by_its_own_name() -> None:
    assert {recognise(quantity.value) and recognise(quantity.value).quantity for quantity in Quantity} == set(Quantity)  # type: ignore[union-attr]


def test_no_name_means_two_things() -> None:
    names = [name for each in NAMES.values() for name in each]

    assert len(names) == len(set(names))


def test_unknown_names_are_left_alone() -> None:
    assert recognise("exp_name") is None


def test_the_preferred_of_two_columns_is_read() -> None:
    found = columns_of(["batch", "global_batch_size"], {})

    assert list(found) == ["global_batch_size"]


def test_a_mapping_wins() -> None:
    found = columns_of(["steps", "updates"], {"steps": "updates"})

    assert found["updates"].quantity is Quantity.STEPS
    assert "steps" not in found


@pytest.mark.parametrize(("mapped", "said"), [({"steps": "update"}, "updates"), ({"stepz": "updates"}, "steps")])
def test_a_wrong_mapping_names_what_is_there(mapped: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        columns_of(["updates"], mapped)
