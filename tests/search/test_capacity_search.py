"""The search for the largest micro-batch: only sizes that passed, few probes, few failures."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.search.capacity import CapacitySearch
from batchlab.testing import check_search


def run(search: CapacitySearch, fits: object) -> list[tuple[int, bool]]:
    probes = []
    while sizes := search.ask():
        assert len(sizes) == 1
        passed = bool(fits(sizes[0]))  # type: ignore[operator]
        probes.append((sizes[0], passed))
        search.tell(sizes, [passed])
        assert len(probes) < 200
    return probes


@settings(deadline=None)
@given(needed=st.integers(1, 5000), truth=st.integers(0, 6000), data=st.data())
def test_finds_the_largest_up_to_what_is_needed(needed: int, truth: int, data: st.DataObject) -> None:
    smallest = data.draw(st.integers(1, needed))
    search = CapacitySearch(needed, smallest)
    probes = run(search, lambda size: size <= truth)
    assert all(smallest <= size <= needed for size, _ in probes)
    assert len({size for size, _ in probes}) == len(probes)
    if truth < smallest:
        assert (search.largest, search.status, search.smallest_failed) == (None, "none", smallest)
        assert len(probes) == 1
    else:
        assert search.largest == min(truth, needed)
        assert search.status == ("proved" if truth < needed else "verified")
        assert search.smallest_failed == (truth + 1 if truth < needed else None)
    assert len(probes) <= 3 + 2 * math.log2(needed + 1)


@settings(deadline=None)
@given(needed=st.integers(1, 400), smallest=st.integers(1, 400), answers=st.lists(st.booleans()), prove=st.booleans())
def test_whatever_the_truth_only_a_size_that_passed_is_returned(
    needed: int, smallest: int, answers: list[bool], prove: bool
) -> None:
    """Also for a flaky device, whose answers follow no line at all."""
    smallest = min(smallest, needed)
    replies = iter(answers)
    search = CapacitySearch(needed, smallest, prove)
    probes = run(search, lambda size: next(replies, False))
    passed = [size for size, fits in probes if fits]
    assert search.largest == (max(passed) if passed else None)
    failed = [size for size, fits in probes if not fits]
    assert search.smallest_failed == (min(failed) if failed else None)
    assert search.status == "none" if not passed else search.status in ("verified", "proved")


@pytest.mark.parametrize(("needed", "probes"), [(64, [1, 16, 64]), (4, [1, 4]), (1, [1]), (100, [1, 25, 100])])
def test_where_everything_fits_three_probes_are_enough(needed: int, probes: list[int]) -> None:
    search = CapacitySearch(needed)
    assert [size for size, _ in run(search, lambda size: True)] == probes
    assert (search.largest, search.status) == (needed, "verified")


def test_doubles_from_below_and_bisects() -> None:
    probes = run(CapacitySearch(512), lambda size: size <= 22)
    assert probes == [
        (1, True), (128, False), (2, True), (4, True), (8, True), (16, True), (32, False), (24, False), (20, True),
        (22, True), (23, False),
    ]  # fmt: skip


@settings(deadline=None)
@given(needed=st.integers(1, 300), truth=st.integers(1, 20_000))
def test_proof_goes_on_until_one_more_fails(needed: int, truth: int) -> None:
    search = CapacitySearch(needed, prove=True)
    run(search, lambda size: size <= truth)
    if truth < 1024 * needed:
        assert (search.largest, search.smallest_failed, search.status) == (truth, truth + 1, "proved")


def test_proof_without_an_end_is_given_up() -> None:
    search = CapacitySearch(8, prove=True)
    run(search, lambda size: True)
    assert search.largest == 8 * 1024
    assert search.status == "verified"


def test_contract() -> None:
    for prove in (False, True):
        assert check_search(lambda prove=prove: CapacitySearch(64, 2, prove), lambda size: size <= 40)[0] == 2


def test_wrong_use_is_refused() -> None:
    for needed, smallest in ((0, 1), (4, 5), (4, 0)):
        with pytest.raises(ValueError, match="1 ≤ smallest ≤ needed"):
            CapacitySearch(needed, smallest)
    search = CapacitySearch(64)
    with pytest.raises(ValueError, match="asked were"):
        search.tell([2], [True])
    with pytest.raises(ValueError, match="asked were"):
        search.tell([1], [])
