"""Shares of unequal devices: where the search ends, and what memory allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from batchlab.core.batch import BatchLayout, lay_out
from batchlab.core.errors import InputError
from batchlab.search.shares import ROUNDS, ShareSearch, most_samples, whole_batch_each, with_shares

LAYOUT = lay_out(64, 16, data_parallel_size=4)


def searched(most: Sequence[int], speeds: Callable[[BatchLayout], Sequence[float]]) -> list[BatchLayout]:
    """Every layout that was proposed."""
    search = ShareSearch(LAYOUT, most)
    proposed: list[BatchLayout] = []
    while asked := search.ask():
        proposed += asked
        search.tell(asked, [speeds(layout) for layout in asked])
    return proposed


def test_equal_devices_are_measured_once_and_keep_equal_shares() -> None:
    assert searched((64,) * 4, lambda layout: (7.0,) * 4) == [LAYOUT]


def test_shares_follow_speed() -> None:
    proposed = searched((64,) * 4, lambda layout: (1.0, 0.8, 0.5, 0.3))
    assert [layout.shares for layout in proposed] == [(), (25, 20, 12, 7)]


def test_speed_at_the_share_itself_decides() -> None:
    """A fixed cost of every step makes a device slower at a small share than at an equal one."""
    proposed = searched((64,) * 4, lambda layout: [layout.share(r) / (4 + layout.share(r) / s) for r, s in FIXED])
    assert 2 <= len(proposed) <= ROUNDS
    assert len(set(proposed)) == len(proposed)
    assert all(sum(layout.shares) == 64 for layout in proposed[1:])


FIXED = list(enumerate((1.0, 0.8, 0.5, 0.3)))


def test_no_share_exceeds_what_a_device_takes() -> None:
    proposed = searched((64, 8, 64, 64), lambda layout: (1.0, 1.0, 1.0, 0.5))
    assert all(layout.share(1) == 8 for layout in proposed)


def test_a_device_takes_what_it_holds_at_once_or_any_number_of_whole_micro_batches() -> None:
    assert most_samples(LAYOUT, (None, 16, 200, 5), accumulates=True) == (1024, 1024, 1024, 5)
    assert most_samples(LAYOUT, (None, 16, 200, 5), accumulates=False) == (16, 16, 16, 5)


def test_devices_too_small_for_the_batch_are_refused() -> None:
    with pytest.raises(InputError, match="cannot share 64"):
        ShareSearch(LAYOUT, most_samples(LAYOUT, (16, 16, 16, 5), accumulates=False))


def test_a_whole_batch_each_fits_on_all() -> None:
    whole = whole_batch_each(LAYOUT, (None, 40, 24))
    assert [sum(whole.micro_batch_sizes(rank)) for rank in range(4)] == [64] * 4
    assert whole.micro_batch_size == 22


def test_equal_shares_are_no_shares() -> None:
    uneven = lay_out(10, 4, data_parallel_size=3)
    assert with_shares(uneven, (4, 3, 3)) == uneven
    assert with_shares(uneven, (3, 4, 3)).shares == (3, 4, 3)
