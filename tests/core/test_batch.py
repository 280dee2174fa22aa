"""Batch sizes: layouts sum up, amounts parse, values are refused in sentences."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from batchlab.core.batch import BatchLayout, lay_out
from batchlab.core.format import format_bytes, format_count
from batchlab.core.parse import parse_bytes


@st.composite
def layouts(draw: st.DrawFn) -> BatchLayout:
    devices = draw(st.integers(1, 9))
    size = draw(st.integers(devices, 600))
    micro = draw(st.integers(1, math.ceil(size / devices)))
    return BatchLayout(
        global_batch_size=size,
        micro_batch_size=micro,
        data_parallel_size=devices,
        sequence_length=draw(st.sampled_from([1, 64, 1024])),
    )


@settings(deadline=None)
@given(layout=layouts())
def test_micro_batches_of_all_devices_sum_to_the_global_batch(layout: BatchLayout) -> None:
    per_rank = [layout.micro_batch_sizes(rank) for rank in range(layout.data_parallel_size)]
    assert sum(map(sum, per_rank)) == layout.global_batch_size
    shares = [sum(sizes) for sizes in per_rank]
    assert max(shares) - min(shares) <= 1
    for sizes in per_rank:
        assert min(sizes) >= 1
        assert max(sizes) <= layout.micro_batch_size
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) <= layout.grad_accum_steps
    assert len(per_rank[0]) == layout.grad_accum_steps
    assert layout.tokens_per_step == layout.global_batch_size * layout.sequence_length
    assert BatchLayout.model_validate_json(layout.model_dump_json()) == layout


@settings(deadline=None)
@given(size=st.integers(1, 3000), fits=st.integers(1, 4000), devices=st.integers(1, 8))
def test_lay_out_never_exceeds_what_fits_and_needs_no_pass_too_many(size: int, fits: int, devices: int) -> None:
    devices = min(devices, size)
    layout = lay_out(size, fits, data_parallel_size=devices)
    sizes = layout.micro_batch_sizes()
    assert max(sizes) == layout.micro_batch_size <= fits
    assert len(sizes) == math.ceil(math.ceil(size / devices) / fits)


def test_pieces_are_even() -> None:
    assert lay_out(64, 48).micro_batch_sizes() == (32, 32)
    assert lay_out(100, 48).micro_batch_sizes() == (34, 33, 33)
    assert lay_out(10, 48, data_parallel_size=4).micro_batch_sizes(3) == (2,)


@pytest.mark.parametrize(
    ("settings_", "says"),
    [
        ({"global_batch_size": 4, "micro_batch_size": 5}, r"more than one device's share \(4\)"),
        ({"global_batch_size": 4, "micro_batch_size": 1, "data_parallel_size": 5}, "5 devices cannot share"),
        ({"global_batch_size": 0, "micro_batch_size": 1}, "greater than 0"),
        ({"global_batch_size": 2.5, "micro_batch_size": 1}, "integer"),
        ({"global_batch_size": 4, "micro_batch_size": 1, "batch": 3}, "Extra inputs"),
    ],
)
def test_impossible_layouts_are_refused(settings_: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        BatchLayout.model_validate(settings_)


def test_layouts_do_not_change() -> None:
    layout = lay_out(8, 4)
    with pytest.raises(ValidationError, match="frozen"):
        layout.micro_batch_size = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("16GiB", 16 * 2**30),
        ("700 MiB", 700 * 2**20),
        ("1.5gb", 1_500_000_000),
        ("2kb", 2000),
        ("4096", 4096),
        (" 12 B ", 12),
        (77, 77),
        ("1tib", 2**40),
    ],
)
def test_amounts_of_memory(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "16 gigs", "GiB", "-3GiB", "0", "nanMB", "infGiB", "1e-3b", "0x10", 1.5])
def test_what_is_no_amount_says_how_to_write_one(text: str | float) -> None:
    with pytest.raises(ValueError, match="write it like 16GiB"):
        parse_bytes(text)


@given(count=st.integers(2**20, 2**45))
def test_amounts_shown_are_read_back_within_rounding(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.05)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (8192, "8,192"), (99_999, "99,999"), (512_000, "512k"), (51_200_000, "51.2M"), (1.3e9, "1.3B")],
)
def test_counts_for_people(count: float, text: str) -> None:
    assert format_count(count) == text


def test_bytes_for_people() -> None:
    assert format_bytes(2**30) == "1.00 GiB"
    assert format_bytes(0.1 * 2**30) == "0.10 GiB"
    assert format_bytes(50 * 2**20) == "50.0 MiB"
