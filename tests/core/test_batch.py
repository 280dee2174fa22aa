"""Batch sizes: layouts sum up, and impossible ones are refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from batchlab.core.batch import BatchLayout, divide, lay_out
from batchlab.core.errors import InputError


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


def test_shares_are_split_into_micro_batches_of_their_own() -> None:
    whole = BatchLayout(global_batch_size=8, micro_batch_size=6, data_parallel_size=2, shares=(6, 2))
    assert [whole.micro_batch_sizes(rank) for rank in range(2)] == [(6,), (2,)]
    split = BatchLayout(global_batch_size=8, micro_batch_size=2, data_parallel_size=2, shares=(6, 2))
    assert [split.micro_batch_sizes(rank) for rank in range(2)] == [(2, 2, 2), (2,)]
    assert [split.samples_before(rank) for rank in range(2)] == [0, 6]
    assert split.grad_accum_steps == 3


@settings(deadline=None)
@given(size=st.integers(1, 500), weights=st.lists(st.floats(0.01, 10.0), min_size=1, max_size=9))
def test_a_batch_is_divided_in_proportion(size: int, weights: list[float]) -> None:
    if len(weights) > size:
        with pytest.raises(InputError, match="at least one"):
            divide(size, weights)
        return
    shares = divide(size, weights)
    assert sum(shares) == size
    assert min(shares) >= 1
    fair = [size * weight / math.fsum(weights) for weight in weights]
    if min(fair) >= 1:
        assert all(abs(share - each) < 1 for share, each in zip(shares, fair, strict=True))


def test_remainders_go_to_the_largest() -> None:
    assert divide(8, [3, 1]) == (6, 2)
    assert divide(10, [1, 1, 1]) == (4, 3, 3)
    assert divide(4, [1000, 1, 1]) == (2, 1, 1)


def test_pieces_are_even() -> None:
    assert lay_out(64, 48).micro_batch_sizes() == (32, 32)
    assert lay_out(100, 48).micro_batch_sizes() == (34, 33, 33)
    assert lay_out(10, 48, data_parallel_size=4).micro_batch_sizes(3) == (2,)


@pytest.mark.parametrize(
    ("settings_", "says"),
    [
        ({"global_batch_size": 4, "micro_batch_size": 5}, r"more than one device's share \(4\)"),
        ({"global_batch_size": 4, "micro_batch_size": 1, "data_parallel_size": 5}, "5 devices cannot share"),
        ({"global_batch_size": 8, "micro_batch_size": 1, "data_parallel_size": 2, "shares": [6, 1]}, "add up to 8"),
        ({"global_batch_size": 8, "micro_batch_size": 1, "data_parallel_size": 3, "shares": [6, 2]}, "of 3 devices"),
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
