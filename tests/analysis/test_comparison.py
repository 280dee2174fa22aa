"""Two sides whose losses are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.analysis.sweep.trained import trained

from batchlab.analysis.comparison import Caveat, Obstacle, Side, Verdict, compare
from batchlab.analysis.values import Cell, Comparing, Interval
from batchlab.analysis.verdict import SlopeFrom, TokenSlope
from batchlab.core.batch import Unit
from batchlab.core.pairing import Pairing

SLOPE = TokenSlope(Interval(0.1, 0.09, 0.11, 3), 2.0, SlopeFrom.RUN, 16, 1e-3)


def side(name: str, losses: Sequence[float], *, pairing: str = "none", confirmed: bool = True) -> Side:
    """One cell of a lucky first seed, and then `losses` at seeds from 1 on, which may be confirmation seeds."""
    runs = [trained(16, 1e-3, min(losses, default=2.0) - 0.001, 0, pairing=pairing)]
    runs += [trained(16, 1e-3, loss, seed, pairing=pairing) for seed, loss in enumerate(losses, start=1)]
    cell = Cell(16, 1e-3, tuple(runs))
    confirmation = frozenset(range(1, 1 + len(losses)) if confirmed else ())
    kind = Pairing(pairing)
    settings = {"schedule.kind": "cosine", "name": name}
    return Side(name, cell, (cell,), confirmation, Unit.TOKENS, 128, 6400, None, "digest", kind, SLOPE, settings)


def test_a_clear_difference_is_told_with_its_interval() -> None:
    found = compare(side("a", [2.0, 2.01, 1.99]), side("b", [1.9, 1.91, 1.89]))

    assert found.verdict is Verdict.BETTER
    assert found.loss is not None
    assert found.loss.value == pytest.approx(-0.1)
    assert found.share is not None
    assert found.share.value == pytest.approx(-0.05)
    assert found.difference is not None
    assert found.difference.by is Comparing.WELCH
    assert found.difference.n == 3


def test_the_seed_that_chose_the_cell_does_not_count() -> None:
    found = compare(side("a", [2.0, 2.0, 2.01]), side("b", [2.0, 2.01, 2.0]))

    assert found.loss is not None
    assert found.loss.value == pytest.approx(0.0)
    assert found.verdict is Verdict.WITHIN_NOISE
    assert found.more_seeds is not None
    assert Caveat.CHOSEN not in found.caveats


def test_equal_time_is_compared_with_equal_time_only() -> None:
    one, other = side("a", [2.0, 2.01, 1.99]), side("b", [1.9, 1.91, 1.89])
    timed = replace(one, run_seconds=300.0), replace(other, run_seconds=300.0, token_budget=9000)
    found = compare(*timed)
    assert found.obstacles == ()  # their best batch sizes see other numbers of tokens in the same time
    assert found.verdict is Verdict.BETTER
    assert compare(timed[0], other).obstacles == (Obstacle.EQUAL_TIME,)
    assert compare(one, timed[1]).obstacles == (Obstacle.EQUAL_TIME,)
    assert compare(timed[0], replace(timed[1], run_seconds=600.0)).obstacles == (Obstacle.TIME,)


def test_the_sides_are_symmetric() -> None:
    one, other = side("a", [2.0, 2.01, 1.99]), side("b", [1.9, 1.93, 1.89])
    forward, backward = compare(one, other), compare(other, one)

    assert (forward.verdict, backward.verdict) == (Verdict.BETTER, Verdict.WORSE)
    assert forward.loss is not None
    assert backward.loss is not None
    assert forward.loss.low == pytest.approx(-(backward.loss.high or 0.0))
    assert forward.tokens is not None
    assert backward.tokens is not None
    assert forward.tokens.value == pytest.approx(-backward.tokens.value)


def test_pairs_cancel_what_a_seed_does_to_both_sides() -> None:
    shared = [2.0, 2.3, 1.8, 2.1, 1.7]
    lower = [loss - 0.01 + 0.001 * (-1) ** place for place, loss in enumerate(shared)]

    paired = compare(side("a", shared, pairing="verified"), side("b", lower, pairing="verified"))
    unpaired = compare(side("a", shared), side("b", lower))

    assert paired.verdict is Verdict.BETTER
    assert paired.difference is not None
    assert paired.difference.by is Comparing.PAIRED
    assert unpaired.verdict is Verdict.WITHIN_NOISE


def test_tokens_are_those_of_the_better_sides_slope() -> None:
    found = compare(side("a", [2.0, 2.0001, 1.9999]), side("b", [1.95, 1.9501, 1.9499]))

    # half of the drop over a factor of two: (1 − ½·(2^β − 1))^(1/β) of the tokens, at β = 1/3
    assert found.tokens is not None
    assert found.tokens.value == pytest.approx(1 - (1 - 0.5 * (2 ** (1 / 3) - 1)) ** 3, abs=0.002)
    assert compare(replace(found.first, slope=None), replace(found.second, slope=None)).tokens is None


def test_a_single_seed_on_both_sides_is_not_tested() -> None:
    found = compare(side("a", [], confirmed=False), side("b", [], confirmed=False))

    assert found.verdict is Verdict.NOT_TESTED
    assert found.loss is not None
    assert found.loss.low is None


@pytest.mark.parametrize(
    ("changed", "obstacle"),
    [
        ({"unit": Unit.SAMPLES}, Obstacle.UNIT),
        ({"sequence_length": 256}, Obstacle.SEQUENCE_LENGTH),
        ({"held_out": "other"}, Obstacle.HELD_OUT),
        ({"token_budget": 12800}, Obstacle.BUDGET),
        ({"best": None}, Obstacle.NO_LOSS),
    ],
)
def test_what_cannot_be_compared(changed: dict[str, object], obstacle: Obstacle) -> None:
    other = replace(side("b", [2.0, 2.1]), **changed)  # type: ignore[arg-type]

    found = compare(side("a", [2.0, 2.1]), other)

    assert found.obstacles == (obstacle,)
    assert found.verdict is None


def test_what_is_unknown_is_a_caveat_and_no_obstacle() -> None:
    unknown = replace(side("b", [2.0, 2.1]), held_out="", unit=None, sequence_length=None, token_budget=None)

    found = compare(side("a", [2.0, 2.1]), unknown)

    assert not found.obstacles
    assert Caveat.HELD_OUT_UNKNOWN in found.caveats


def test_settings_that_differ() -> None:
    one, other = side("a", [2.0, 2.1]), side("a", [2.0, 2.1])
    other = replace(other, settings={**other.settings, "schedule.kind": "wsd", "seed": "1"})

    differ = [(setting.name, setting.first, setting.second) for setting in compare(one, other).differ]

    assert differ == [("schedule.kind", "cosine", "wsd"), ("seed", "", "1")]
