"""What a person types: amounts, headroom, axes, counts and times, and what is said where it is none of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.errors import InputError, quote
from batchlab.core.format import format_bytes
from batchlab.core.parse import (
    headroom_bytes,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_learning_rates,
    parse_memory_limit,
    parse_sizes,
    require_headroom,
)


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


@pytest.mark.parametrize(
    "text",
    [
        *("", "16 gigs", "GiB", "-3GiB", "0", "nanMB", "infGiB", "1e-3b", "0x10", 1.5, True, None),
        *("1,5GiB", "16GiB,32GiB", "16Gbit", "1e400GiB", "9" * 400, "1025TiB", 2**51, 10**5000),
    ],
    ids=lambda given_: quote(given_, 30),
)
def test_what_is_no_amount_says_how_to_write_one(text: object) -> None:
    with pytest.raises(ValueError, match="write it like 16GiB") as caught:
        parse_bytes(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("given_", ["64", 64, "1023KiB", "80 B"])
def test_a_limit_below_a_mebibyte_lacks_a_unit(given_: str | int) -> None:
    with pytest.raises(ValueError, match="give a unit, like 16GiB"):
        parse_memory_limit(given_)
    assert parse_memory_limit("1MiB") == parse_memory_limit(2**20) == 2**20


@pytest.mark.parametrize("text", ["24Gb", "24 Gib", "700Mb", "1Tb"])
def test_what_may_mean_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="may mean bits"):
        parse_memory_limit(text)


@given(count=st.integers(2**20, 2**45))
def test_amounts_shown_are_read_back_within_rounding(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.05)


@pytest.mark.parametrize(
    ("headroom", "count"),
    [("5%", 50), ("0", 0), ("5B", 5), ("0%", 0), (" 12.5% ", 125), ("1KiB", 1024), ("99.95%", 1000)],
)
def test_headroom_is_a_share_of_the_limit_or_an_amount(headroom: str, count: int) -> None:
    assert headroom_bytes(headroom, 1000) == count
    assert require_headroom(headroom) == headroom


@pytest.mark.parametrize("headroom", ["100%", "-1%", "x%", "", "5", "1e400%", 1.5, 5, True, None])
def test_what_is_no_headroom_is_refused(headroom: object) -> None:
    with pytest.raises(ValueError, match=r"write it like|from 0%"):
        require_headroom(headroom)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("1e-4,3e-4", (1e-4, 3e-4)),
        ("3e-4, 1e-4,1e-4", (1e-4, 3e-4)),
        ("0.1", (0.1,)),
        ("1e-4:1e-1", (1e-4, 1e-3, 1e-2, 1e-1)),
        ("1e-4:1e-2:3", (1e-4, 1e-3, 1e-2)),
        ("1e-4:3e-3:2", (1e-4, 3e-3)),
    ],
)
def test_learning_rates_are_parsed(text: str, rates: tuple[float, ...]) -> None:
    assert parse_learning_rates(text) == pytest.approx(rates)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("1e-3,", "empty"),
        ("-1e-3", "not a positive"),
        ("0", "not a positive"),
        ("nan", "not a positive"),
        ("1e-3,inf", "not a positive"),
        ("fast", "not a number"),
        ("3e-3:1e-4", "lower end first"),
        ("1e-3:1e-3", "lower end first"),
        ("1e-4:1e-3:1", "a count from 2"),
        ("1e-4:1e-3:2.5", "a count from 2"),
        ("1e-4:1e-3:", "a count from 2"),
        ("1:2:3:4", "too many colons"),
        ("1e-3:1.001e-3:9", "do not fit"),
        ("1e-4:1e-3:100000000", "a count from 2 to 100"),
        (f"1e-4:1e-3:{'9' * 5000}", "a count from 2 to 100"),
        ("1e400", "not a positive"),
        ("1e300", "not between"),
        ("1e-300:1e300", "not between"),
        (",".join(["1e-3"] * 101), "101 values; give at most 100"),
    ],
)
def test_wrong_learning_rates_are_answered_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_learning_rates(text)
    assert quote(text) in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1,8,32", (1, 8, 32)),
        ("32, 8,8", (8, 32)),
        ("7", (7,)),
        ("1:512", tuple(2**i for i in range(10))),
        ("3:24", (3, 6, 12, 24)),
        ("4:50", (4, 8, 16, 32, 50)),
        ("8:8", (8,)),
    ],
)
def test_sizes_are_parsed(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("4,,8", "empty"),
        ("-4", "less than one"),
        ("0", "less than one"),
        ("1.5", "not a whole number"),
        ("big", "not a whole number"),
        ("64:8", "smaller end first"),
        ("1:2:3", "too many colons"),
        (":8", "empty"),
        ("8,1e400", "not a whole number"),
        ("1000000001", "more than 1,000,000,000"),
        (f"1:{'9' * 400}", "more than 1,000,000,000"),
        ("9" * 5000, "not a whole number"),
        (",".join(["8"] * 101), "101 values; give at most 100"),
    ],
)
def test_wrong_sizes_are_answered_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_sizes(text)
    assert quote(text) in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "count"),
    [("262144", 262_144), ("262_144", 262_144), ("50M", 50_000_000), ("1.5B", 1.5e9), ("4e6", 4e6), ("2.1T", 2.1e12)],
)
def test_counts(text: str, count: float) -> None:
    assert parse_count(text, "--token-budget") == count


@pytest.mark.parametrize("text", ["", "many", "0", "-5", "1.5", "1.2.3", "5Q", "1e-3"])
def test_what_is_no_count_is_answered_with_the_flag(text: str) -> None:
    with pytest.raises(InputError, match="--max-tokens"):
        parse_count(text, "--max-tokens")


@pytest.mark.parametrize("text", ["1e400", "1e999999", "9" * 400, "9" * 5000, "1000001T"])
def test_a_count_beyond_reason_is_answered_with_the_most(text: str) -> None:
    with pytest.raises(InputError, match="is more than 1,000,000T"):
        parse_count(text, "--max-tokens")
    assert parse_count("1000000T", "--max-tokens") == 10**18


@given(count=st.integers(1, 10**18))
def test_counts_are_exact(count: int) -> None:
    assert parse_count(str(count), "--max-tokens") == count


@pytest.mark.parametrize(
    ("text", "seconds"), [("3h", 10800), ("45m", 2700), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "3", "-3h", "0m", "3 days"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InputError, match="1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["100001h", f"{'9' * 400}h", f"{'9' * 5000}m", f"1h{'9' * 310}s"])
def test_a_duration_beyond_reason_is_answered_with_the_longest(text: str) -> None:
    with pytest.raises(InputError, match="more than 100,000h"):
        parse_duration(text)
