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


@st.composite
def capped(draw: st.DrawFn) -> tuple[int, list[float], list[int]]:
    """(size, weights, caps) that can be shared."""
    weights = draw(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9))
    caps = draw(st.lists(st.integers(1, 60), min_size=len(weights), max_size=len(weights)))
    return draw(st.integers(len(weights), sum(caps))), weights, caps


@settings(deadline=None, max_examples=500)
@given(asked=capped())
def test_shares_within_caps_are_in_proportion(asked: tuple[int, list[float], list[int]]) -> None:
    size, weights, caps = asked
    shares = divide(size, weights, caps)
    assert sum(shares) == size
    assert all(1 <= share <= cap for share, cap in zip(shares, caps, strict=True))
    fair = [size * weight / math.fsum(weights) for weight in weights]
    if all(1 <= each <= cap for each, cap in zip(fair, caps, strict=True)):
        assert all(abs(share - each) < 1 + 1e-9 for share, each in zip(shares, fair, strict=True))
    free = [one for one in range(len(weights)) if 1 < shares[one] < caps[one]]
    for one in free:  # between two that no bound holds, the speeds decide: each is within one of its proportion
        for other in free:
            assert shares[one] - 1 <= (shares[other] + 1) * weights[one] / weights[other] + 1e-6


@settings(deadline=None, max_examples=500)
@given(asked=capped(), data=st.data())
def test_a_faster_device_with_as_much_memory_never_takes_less(
    asked: tuple[int, list[float], list[int]], data: st.DataObject
) -> None:
    size, weights, caps = asked
    shares = divide(size, weights, caps)
    for one, other in [(a, b) for a in range(len(weights)) for b in range(len(weights))]:
        if weights[one] > weights[other] and caps[one] >= caps[other]:
            assert shares[one] >= shares[other]
    one = data.draw(st.integers(0, len(weights) - 1))
    faster = [weight * (2 if at == one else 1) for at, weight in enumerate(weights)]
    assert divide(size, faster, caps)[one] >= shares[one] - 1  # the known flaw of largest remainders costs one at most


def test_what_a_device_cannot_take_goes_to_the_others() -> None:
    assert divide(64, (1.0, 1.0, 1.0, 1.0), (4, 64, 64, 64)) == (4, 20, 20, 20)
    assert divide(64, (8.0, 1.0, 1.0, 1.0), (16, 64, 64, 64)) == (16, 16, 16, 16)
    assert divide(10, (1.0, 0.0), (3, 10)) == (3, 7)


@pytest.mark.parametrize("caps", [(4, 4, 4), (0, 32, 32)])
def test_what_devices_cannot_share_is_refused(caps: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="cannot share 32"):
        divide(32, (1.0, 1.0, 1.0), caps)


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
