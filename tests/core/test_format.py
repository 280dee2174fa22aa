"""One spelling per quantity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.analysis.values import Interval
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.format import (
    format_batch,
    format_bytes,
    format_count,
    format_flops,
    format_hours,
    format_interval,
    format_layout,
    format_learning_rate,
    format_learning_rates,
    format_list,
    format_loss,
    format_milliseconds,
    format_plural,
    format_signed,
    format_size,
    format_split,
    format_times,
    format_times_interval,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-3, "1.0e-3"),
        (7.0711e-4, "7.07e-4"),
        (0.4, "0.4"),
        (1.414, "1.41"),
        (3.0, "3"),
        (0.05, "5.0e-2"),
        (1.25e-5, "1.25e-5"),
        (None, "–"),
    ],
)
def test_learning_rate(value: float | None, text: str) -> None:
    assert format_learning_rate(value) == text


@given(st.floats(min_value=1e-9, max_value=10))
def test_learning_rate_keeps_three_digits(value: float) -> None:
    assert float(format_learning_rate(value)) == pytest.approx(value, rel=0.006)


def test_ratios() -> None:
    assert format_times(6.6) == "6.6 times"
    assert format_times(2.0) == "2 times"
    assert format_times(12.34) == "12 times"
    assert format_times(9.97) == "10 times"
    assert format_times_interval(Interval(8.0, 6.0, 10.0)) == "8 times [6, 10]"
    assert format_times_interval(Interval(8.0, None, 10.0)) == "8 times [0, 10]"
    assert format_times_interval(Interval(8.0, 6.0, None)) == "8 times [6, ∞]"
    assert format_times_interval(Interval(8.0)) == "8 times"


def test_losses_and_intervals() -> None:
    assert format_loss(1.48249) == "1.482"
    assert format_loss(0.012345) == "0.0123"
    assert format_interval(Interval(1.482, 1.474, 1.49, n=3)) == "1.482 [1.474, 1.490]"
    assert format_interval(Interval(1.482)) == "1.482"
    assert format_interval(None) == "–"
    assert format_signed(-0.0321) == "−0.032"


@pytest.mark.parametrize(
    ("hours", "text"), [(10 / 3600, "10 s"), (0.5, "30 min"), (2.11, "2 h 06 min"), (1234.5, "1,234 h"), (None, "–")]
)
def test_duration(hours: float | None, text: str) -> None:
    assert format_hours(hours) == text


def test_milliseconds() -> None:
    texts = [format_milliseconds(seconds) for seconds in (1.25, 3.14e-3, 4.2e-5, 5e-8, 8.7e-19, -1e-19)]
    assert texts == ["1,250 ms", "3.14 ms", "0.042 ms", "5e-05 ms", "0 ms", "0 ms"]


def test_lists_and_plurals() -> None:
    assert format_list((8, 16, 1024)) == "8, 16 and 1,024"
    assert format_list(()) == ""
    assert format_plural(1, "run") == "1 run"
    assert format_plural(2, "batch size") == "2 batch sizes"


def test_splits_name_several_devices() -> None:
    split = BatchLayout(global_batch_size=64, micro_batch_size=8, data_parallel_size=4, sequence_length=256)
    assert format_split(split) == "8 × 2 × 4 devices"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (8192, "8,192"),
        (99_999, "99,999"),
        (512_000, "512k"),
        (51_200_000, "51.2M"),
        (1.3e9, "1.3B"),
        (2.1e12, "2.1T"),
    ],
)
def test_counts_for_people(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(("size", "text"), [(5.6569, "5.66"), (41.23, "41.2"), (100.4, "100"), (2**21, "2.1M")])
def test_batch_sizes_that_need_not_be_whole(size: float, text: str) -> None:
    assert format_size(size) == text


def test_bytes_for_people() -> None:
    assert format_bytes(2**30) == "1.00 GiB"
    assert format_bytes(0.1 * 2**30) == "0.10 GiB"
    assert format_bytes(50 * 2**20) == "50.0 MiB"


def test_many_learning_rates_are_counted() -> None:
    assert format_learning_rates({2e-3, 1e-3}) == "1.0e-3 and 2.0e-3"
    assert format_learning_rates([1e-3 * 1.1**i for i in range(40)]) == "40 between 1.0e-3 and 4.11e-2"
    assert format_learning_rates(()) == ""


@pytest.mark.parametrize(
    ("flops", "says"), [(3e18, "3 exaFLOP"), (491e15, "491 petaFLOP"), (2e12, "2 teraFLOP"), (5e8, "0.5 gigaFLOP")]
)
def test_arithmetic_in_its_unit(flops: float, says: str) -> None:
    assert format_flops(flops) == says


def test_a_batch_of_one_is_singular() -> None:
    assert format_batch(1, Unit.TOKENS, 256) == "1 sequence"
    assert format_batch(32, Unit.TOKENS, 256) == "32 sequences"
    assert format_batch(1, Unit.SAMPLES, 1) == "1 sample"
    one = BatchLayout(global_batch_size=1, micro_batch_size=1, sequence_length=256)
    assert format_layout(one, Unit.TOKENS) == "micro-batch 1 × accum 1 × 1 device = 1 sequence (256 tokens/step)"
