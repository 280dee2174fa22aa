"""The search for the largest micro-batch: exact, in three probes, without a failure."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.core.parse import headroom_bytes
from batchlab.search.capacity import Answer, CapacitySearch, Probe, Probed, Question, Trace, Traced
from batchlab.search.forecast import half_tolerance, tolerance
from batchlab.search.memory_curve import largest_size
from batchlab.testing import check_search

MIB = 2**20
Bytes = Callable[[int], float]
Phases = Callable[[int], tuple[float, ...]]


def answer(question: Question, traced: Phases | None, needed: Bytes, limit: int) -> Answer:
    if isinstance(question, Trace):
        return Traced([(size, traced(size)) for size in question.sizes] if traced else [])
    peak = round(needed(question.size))
    return Probed(fits=peak <= limit, peak_bytes=peak if peak <= limit else None)


def run(search: CapacitySearch, traced: Phases | None, needed: Bytes) -> list[tuple[int, bool]]:
    """(size, fits) of every probe."""
    probes: list[tuple[int, bool]] = []
    for _ in range(200):
        if not (asked := search.ask()):
            return probes
        (question,) = asked
        told = answer(question, traced, needed, search.budget_bytes)
        if isinstance(question, Probe):
            assert isinstance(told, Probed)
            probes.append((question.size, told.fits))
        search.tell(asked, [told])
    raise AssertionError("the search does not end")


def assert_exact(search: CapacitySearch, needed: Bytes, most: int) -> None:
    """The largest size fits, and one that is worth another probe does not; to the sample if it is to be proved.

    A few bytes are lost where lines are drawn.
    """
    largest = search.largest
    assert largest is not None
    assert round(needed(largest)) <= search.budget_bytes
    more = 0 if search.status == "proved" else half_tolerance(largest)
    assert largest + more >= most or needed(largest + more + 1) > search.budget_bytes - 64


@settings(deadline=None, max_examples=300)
@given(
    flat=st.integers(10, 1000),
    share=st.floats(0, 1),
    slope=st.floats(0.5, 60),
    room=st.floats(1.45, 6),
    constant=st.floats(0, 0.1),
    growing=st.floats(0, 0.3),
    prove=st.booleans(),
)
def test_exact_in_three_probes_without_a_failure(
    flat: int, share: float, slope: float, room: float, constant: float, growing: float, prove: bool
) -> None:
    """What the trace cannot see is a constant, or a share of the activations."""

    def traced(size: int) -> tuple[float, float]:
        return flat * MIB, (share * flat + slope * size) * MIB

    def needed(size: int) -> float:
        return (max(flat, share * flat + (1 + growing) * slope * size) + constant * flat) * MIB

    limit = round((flat * room + 12 * slope) * MIB)
    most = 20_000
    search = CapacitySearch(limit, most=most, prove=prove)
    probes = run(search, traced, needed)
    assert_exact(search, needed, most)
    exact = search.largest or 0
    assert search.status == ("proved" if prove and exact < most else "verified")
    failures = sum(not fits for _, fits in probes)
    # Where the calibration lies below the bend that the offset's own growth has moved, one more may be needed. A size
    # may be measured before it is verified.
    assert len({size for size, fits in probes if fits}) <= 4
    assert failures == (1 if prove and exact < most else 0)


def test_a_decoder_within_1500_megabytes() -> None:
    """Traced: optimizer step 110 MB, backward 111 + 24 MB per sequence; a process uses 8 MB more."""

    def traced(size: int) -> tuple[float, float]:
        return 110e6, 111e6 + 24e6 * size

    search = CapacitySearch(1_500_000_000, most=4096)
    probes = run(search, traced, lambda size: max(traced(size)) + 8e6)
    assert (search.predicted, search.largest) == (57, 57)
    assert probes == [(28, True), (57, True)]
    search = CapacitySearch(1_500_000_000, most=4096, prove=True)
    assert run(search, traced, lambda size: max(traced(size)) + 8e6)[-1] == (58, False)
    assert search.status == "proved"


def test_a_convolution_whose_kernels_use_a_quarter_more() -> None:
    search = CapacitySearch(100 * MIB, most=4096)
    probes = run(search, lambda size: (size * MIB,), lambda size: 1.25 * size * MIB)
    assert probes == [(50, True), (80, True), (80, True)], "measured in forked processes, then verified"
    assert search.largest == 80


def test_of_traced_sizes_only_the_answer_is_verified() -> None:
    """A constant offset: what proportion allows is less than the answer by far, and only measured."""
    search = CapacitySearch(200 * MIB, most=4096)
    verified: list[tuple[int, bool]] = []
    while asked := search.ask():
        (question,) = asked
        told = answer(question, lambda size: (size * MIB / 4,), lambda size: (10 + size / 4) * MIB, 200 * MIB)
        if isinstance(question, Probe):
            verified.append((question.size, question.verifies))
        search.tell(asked, [told])
    assert verified == [(400, False), (727, False), (757, True)], (
        "760 fits by the line, to the byte, and 757 is near enough"
    )


def test_half_of_the_predicted_size_is_traced_only_where_memory_bends() -> None:
    def traced_sizes(phases: Phases) -> list[tuple[int, ...]]:
        search = CapacitySearch(1000, most=10_000)
        traced: list[tuple[int, ...]] = []
        while asked := search.ask():
            (question,) = asked
            if isinstance(question, Trace):
                traced.append(question.sizes)
            search.tell(asked, [answer(question, phases, lambda size: max(phases(size)), 1000)])
        return traced

    assert traced_sizes(lambda size: (10.0 * size,)) == [(2, 32), (100,)]
    *_, half = traced_sizes(lambda size: (size + 0.1 * size**2,))
    assert half == (47,)


def untraced(needed: Bytes, limit: float, *, prove: bool = False) -> tuple[CapacitySearch, list[tuple[int, bool]]]:
    """A finished search whose model cannot be traced, and its probes. Bytes are whole."""
    search = CapacitySearch(round(limit * MIB), most=20_000, prove=prove)
    probes = run(search, None, lambda size: needed(size) * MIB)
    assert search.untraceable
    return search, probes


def samples_short(search: CapacitySearch, needed: Bytes) -> int:
    """How many more samples than the answer would fit; the answer itself does."""
    largest = search.largest or 0
    assert largest == 0 or round(needed(largest) * MIB) <= search.budget_bytes
    return largest_size(lambda more: round(needed(largest + more) * MIB) <= search.budget_bytes, 20_000 - largest)


FIXED, PER_SAMPLE, ROOM = st.integers(10, 500), st.floats(0.5, 60), st.floats(1.05, 6)
ORDINARY = 6
"""Sizes that run, the verified one included, where memory follows a line or a parabola."""


@settings(deadline=None, max_examples=300)
@given(fixed=FIXED, slope=PER_SAMPLE, room=ROOM, prove=st.booleans())
def test_untraced_affine_memory_takes_six_sizes_and_no_failure(
    fixed: int, slope: float, room: float, prove: bool
) -> None:
    def needed(size: int) -> float:
        return fixed + slope * size

    search, probes = untraced(needed, fixed * room + 10 * slope, prove=prove)
    assert samples_short(search, needed) <= tolerance(search.largest or 0)
    assert sum(fits for _, fits in probes) <= ORDINARY + 2 * prove  # one that was to fail, and its new process
    assert sum(not fits for _, fits in probes) <= prove


@settings(deadline=None, max_examples=300)
@given(fixed=FIXED, slope=PER_SAMPLE, share=st.floats(-4, 0.5), room=ROOM)
def test_untraced_quadratic_memory_takes_six_sizes(fixed: int, slope: float, share: float, room: float) -> None:
    """Where fewer than a dozen samples fit, three sizes are all there is, and the next one may have to fail."""

    def needed(size: int) -> float:
        return fixed + slope * size + 10**share * slope * size**2

    search, probes = untraced(needed, fixed * room + 10 * slope + 30 * 10**share * slope)
    assert samples_short(search, needed) <= tolerance(search.largest or 0)
    assert sum(fits for _, fits in probes) <= ORDINARY
    assert sum(not fits for _, fits in probes) <= 1


@settings(deadline=None, max_examples=300)
@given(flat=FIXED, share=st.floats(0, 1), slope=PER_SAMPLE, room=ROOM, square=st.sampled_from([0.0, 0.01, 1.0]))
def test_untraced_memory_that_is_flat_and_then_rises_is_exact(
    flat: int, share: float, slope: float, room: float, square: float
) -> None:
    def needed(size: int) -> float:
        return max(flat, share * flat + slope * size + square * slope * size**2)

    search, probes = untraced(needed, flat * room + 10 * slope)
    assert samples_short(search, needed) <= tolerance(search.largest or 0)
    assert len(probes) <= 20


@settings(deadline=None, max_examples=300)
@given(
    fixed=FIXED,
    slope=PER_SAMPLE,
    room=ROOM,
    width=st.sampled_from([2, 3, 8, 32]),
    noise=st.floats(0, 0.4),
    seed=st.integers(0, 2**32),
)
def test_untraced_memory_with_steps_and_noise_is_exact_to_a_step(
    fixed: int, slope: float, room: float, width: int, noise: float, seed: int
) -> None:
    """Allocators round up, so that memory rises in steps; processes differ by a part of a sample, which costs at most
    one."""

    def needed(size: int) -> float:
        return fixed + slope * (width * math.ceil(size / width) + Random(seed + size).uniform(-noise, noise))

    search, _ = untraced(needed, fixed * room + 40 * slope)
    assert samples_short(search, needed) <= max(tolerance(search.largest or 0), width) + 1


@settings(deadline=None, max_examples=300)
@given(steps=st.lists(st.tuples(st.integers(1, 3000), st.floats(1, 100)), min_size=1), room=st.floats(1, 1000))
def test_a_proof_is_exact_whatever_memory_does(steps: list[tuple[int, float]], room: float) -> None:
    """Any memory that never falls."""

    def needed(size: int) -> float:
        return sum(height for at, height in steps if size >= at)

    search, _ = untraced(needed, room, prove=True)
    assert samples_short(search, needed) == 0


def test_untraced_memory_flat_up_to_a_thousand_samples() -> None:
    """The case that six probes had left at 1,280 of 1,922."""

    def needed(size: int) -> float:
        return max(500.0, 0.5 * size)

    search, _ = untraced(needed, 961.3)
    assert search.largest == 1922


@settings(deadline=None)
@given(answers=st.lists(st.booleans()), traceable=st.booleans(), prove=st.booleans(), most=st.integers(1, 500))
def test_whatever_the_truth_only_a_size_that_passed_is_returned(
    answers: list[bool], traceable: bool, prove: bool, most: int
) -> None:
    """Also for a flaky device, whose answers follow no line at all."""
    search, replies, seen = CapacitySearch(100, most=most, prove=prove), iter(answers), dict[int, bool]()
    while asked := search.ask():
        (question,) = asked
        if isinstance(question, Trace):
            told: Answer = Traced([(size, (float(size),)) for size in question.sizes] if traceable else [])
        else:
            seen[question.size] = next(replies, False)
            told = Probed(seen[question.size])
        search.tell(asked, [told])
    failed = [size for size, fits in seen.items() if not fits]
    passed = [size for size, fits in seen.items() if fits and size < min(failed, default=most + 1)]
    assert search.largest == max(passed, default=None)


@pytest.mark.parametrize(("limit", "probes"), [(1000, [64]), (70, [32, 64]), (40, [20, 40])])
def test_where_all_that_is_needed_fits_with_room_one_probe_is_enough(limit: int, probes: list[int]) -> None:
    search = CapacitySearch(limit, most=64)
    assert [size for size, _ in run(search, lambda size: (size,), lambda size: size)] == probes


def test_nothing_fits_and_nothing_that_cannot_fit_is_run() -> None:
    search = CapacitySearch(100, most=64)
    assert run(search, lambda size: (150 + size,), lambda size: 150 + size) == []
    assert (search.largest, search.status) == (None, "none")
    assert search.needed_bytes(1) == 151
    search = CapacitySearch(100, most=64)
    assert run(search, lambda size: (100 + size,), lambda size: 100 + size) == [(1, False)]


def test_a_prediction_runs_nothing() -> None:
    search = CapacitySearch(1000, most=64, probe=False)
    assert run(search, lambda size: (600, 30 * size), lambda size: 1 / 0) == []
    assert (search.largest, search.status) == (33, "predicted")


def test_headroom_is_left_free() -> None:
    search = CapacitySearch(1000, most=10_000, headroom=lambda limit: headroom_bytes("5%", limit))
    run(search, lambda size: (10 * size,), lambda size: 10 * size)
    assert (search.headroom_bytes, search.budget_bytes, search.largest) == (50, 950, 95)


def test_a_device_that_has_less_than_it_said_lowers_the_limit() -> None:
    search = CapacitySearch(1000, most=10_000)
    while asked := search.ask():
        (question,) = asked
        if isinstance(question, Trace):
            search.tell(asked, [Traced([(size, (10.0 * size,)) for size in question.sizes])])
        else:
            fits = question.size <= 80
            search.tell(asked, [Probed(fits, 10 * question.size if fits else None, available_bytes=800)])
    assert (search.limit_bytes, search.largest, search.smallest_failed) == (800, 80, None)


def test_a_miss_moves_by_bytes_and_not_by_halves() -> None:
    """The last piece of memory is needed only at the verified size itself."""
    search = CapacitySearch(1000, most=10_000)
    probes = run(search, lambda size: (10 * size,), lambda size: 10 * size + (15 if size > 90 else 0))
    assert probes == [(50, True), (100, False), (99, False), (98, True)]
    assert search.largest == 98


@settings(deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    fixed=st.floats(1, 50),
    offset=st.floats(-1, 10),
    room=st.integers(40, 180),
    prove=st.booleans(),
)
def test_noise_of_less_than_a_sample_costs_one_probe_at_most(
    seed: int, fixed: float, offset: float, room: int, prove: bool
) -> None:
    """Bytes in samples. Every process holds a little more or less in vain than the one before."""
    noise = [Random(seed + size).uniform(-0.4, 0.4) for size in range(301)]
    search = CapacitySearch(round((fixed + room) * MIB), most=300, prove=prove)

    def needed(size: int) -> float:
        return (fixed + offset + size + noise[size]) * MIB

    probes = run(search, lambda size: ((fixed + size) * MIB,), needed)
    assert len(probes) <= 4 + 2 * prove  # a size that was to fail and did not is verified in a new process
    assert sum(not fits for _, fits in probes) <= 1 + prove
    too_large = next(size for size in range(1, 301) if round(needed(size)) > search.budget_bytes)
    assert (search.largest or 0) >= too_large - 2
    assert search.largest is not None
    assert round(needed(search.largest)) <= search.budget_bytes


def test_contract() -> None:
    for traceable in (True, False):
        traced: Phases | None = (lambda size: (2.0 * size,)) if traceable else None
        for prove in (False, True):
            check_search(
                lambda prove=prove: CapacitySearch(100, most=64, prove=prove),  # type: ignore[misc]
                partial(answer, traced=traced, needed=lambda size: 2.1 * size, limit=100),
            )


def test_wrong_use_is_refused() -> None:
    for most, smallest in ((0, 1), (4, 5), (4, 0)):
        with pytest.raises(ValueError, match="1 ≤ smallest ≤ most"):
            CapacitySearch(100, most=most, smallest=smallest)
    search = CapacitySearch(100, most=64)
    with pytest.raises(ValueError, match="exactly what ask"):
        search.tell([Probe(2)], [Probed(True)])
    with pytest.raises(ValueError, match="exactly what ask"):
        search.tell(search.ask(), [])


def test_what_processes_differ_by_stays_free() -> None:
    """The baselines of two probes differ by three samples, so a third process may hold as much more."""
    search = CapacitySearch(1000, most=10_000)
    baselines = iter([500, 530, 515])
    while asked := search.ask():
        (question,) = asked
        if isinstance(question, Trace):
            search.tell(asked, [Traced([(size, (10.0 * size,)) for size in question.sizes])])
        else:
            search.tell(asked, [Probed(question.size <= 100, 10 * question.size, None, next(baselines))])
    assert (search.noise_bytes, search.margin_bytes) == (30, 30)


@pytest.mark.parametrize(
    ("spread", "lower", "upper"), [(0.0, 96, 100), (0.02, 96, 100), (0.04, 92, 100), (0.5, 90, 99)]
)
def test_where_memory_depends_on_values_the_answer_is_a_range(spread: float, lower: int, upper: int) -> None:
    search = CapacitySearch(1000, most=10_000)
    while asked := search.ask():
        (question,) = asked
        if isinstance(question, Trace):
            search.tell(asked, [Traced([(size, (10.0 * size,)) for size in question.sizes], spread)])
        else:
            search.tell(asked, [Probed(question.size <= 100, 10 * question.size)])
    assert (search.largest, search.up_to) == (lower, upper)


@pytest.mark.parametrize(("share", "largest"), [(0.0, 96), (0.1, 90), (0.4, 71)])
def test_a_size_whose_peak_still_rises_needs_room_for_as_much_again(share: float, largest: int) -> None:
    """The batches of a probe raised the peak by this share of it; more batches would raise it further."""
    search = CapacitySearch(1000, most=10_000)
    while asked := search.ask():
        (question,) = asked
        if isinstance(question, Trace):
            search.tell(asked, [Traced([(size, (10.0 * size,)) for size in question.sizes], 0.0)])
        else:
            needed = 10 * question.size
            search.tell(asked, [Probed(question.size <= 100, needed, grown_bytes=round(share * needed))])
    assert (search.largest or 0) * 10 * (1 + share) <= 1000
    assert largest * 0.97 <= (search.largest or 0) <= largest
    assert search.smallest_failed is None


def test_sizes_between_a_failure_and_the_answer_are_tried_again() -> None:
    """What is not traced jumps at one size, as kernels do, and lies on no line."""
    search = CapacitySearch(1000, most=10_000)
    probes = run(search, lambda size: (10 * size,), lambda size: 10 * size + (40 if size > 97 else 0))
    assert (search.largest or 0) >= 96
    assert sum(not fits for _, fits in probes) <= 3


def test_after_a_wrong_line_the_next_size_is_one_that_proportion_allows() -> None:
    """Kernels take more from 34 samples on, so the line through 25 and 33 overshoots by far."""

    def needed(size: int) -> float:
        return 7 + 0.6 * size + (14.3 if size < 34 else 17.0)

    search = CapacitySearch(47, most=500)
    probes = run(search, lambda size: (7 + 0.6 * size,), needed)
    assert needed(search.largest or 0) <= 47
    assert sum(not fits for _, fits in probes) <= 2
