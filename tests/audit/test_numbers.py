from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.analysis.audit.table import Quantity
from batchlab.audit.numbers import parse_number


@pytest.mark.parametrize(
    ("text", "quantity", "value"),
    [
        ("25,701", Quantity.STEPS, 25701),
        ("327.68M", Quantity.TOKENS, 327_680_000),
        ("~327.68M tokens", Quantity.TOKENS, 327_680_000),
        ("7.22 hrs", Quantity.SECONDS, 7.22 * 3600),
        ("28.49 GiB", Quantity.PEAK_BYTES, 28.49 * 2**30),
        ("273 MB (2× parameters)", Quantity.OPTIMIZER_BYTES, 273e6),
        ("**192**", Quantity.GLOBAL_BATCH_SIZE, 192),
        ("3e-4", Quantity.LEARNING_RATE, 3e-4),
        ("-0.5", Quantity.VAL_LOSS, -0.5),
        ("0.0003", Quantity.LEARNING_RATE, 3e-4),
    ],
)
def test_numbers_as_people_write_them(text: str, quantity: Quantity, value: float) -> None:
    assert parse_number(text, quantity) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "-", "N/A", "—", "✗", "OOM", "hello", "1.2.3"])
def test_cells_without_a_value(text: str) -> None:
    assert parse_number(text, Quantity.VAL_LOSS) is None


def test_a_diverged_loss_is_not_missing() -> None:
    assert math.isnan(parse_number("nan", Quantity.VAL_LOSS) or 0.0)
    assert parse_number("inf", Quantity.VAL_LOSS) == math.inf


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_what_python_prints_is_read_back(value: float) -> None:
    assert parse_number(repr(value), Quantity.VAL_LOSS) == value


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_none(text: str) -> None:
    assert isinstance(parse_number(text, Quantity.SECONDS), float | None)
