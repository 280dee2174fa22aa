from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.record import Outcome
from batchlab.search.feasibility import share_that_ends
from batchlab.search.lattice import Cells
from batchlab.search.trial import Trial, TrialOutcome

SIZES, RATES = (8, 16, 32, 64), tuple(1e-3 * 2.0**i for i in range(6))
CELLS = Cells(tuple(size for size in SIZES for _ in RATES), RATES * len(SIZES))
WORKED, FAILED = TrialOutcome(1.0), TrialOutcome(None, why=Outcome.FAILED)


def shares(outcomes: dict[tuple[int, float], TrialOutcome]) -> np.ndarray:
    """Sizes × learning rates."""
    told = {Trial(size, rate, 0): outcome for (size, rate), outcome in outcomes.items()}
    return share_that_ends(CELLS, told).reshape(len(SIZES), len(RATES))


def test_without_a_failure_every_cell_works() -> None:
    assert (shares({}) == 1).all()
    diverged = TrialOutcome(None, why=Outcome.DIVERGED)
    no_memory = TrialOutcome(None, why=Outcome.OUT_OF_MEMORY)
    assert (shares({(8, RATES[0]): WORKED, (16, RATES[5]): diverged, (64, RATES[0]): no_memory}) == 1).all()


def test_what_lies_beyond_failures_is_likelier_to_fail_than_what_lies_before_them() -> None:
    known = {(16, RATES[2]): WORKED, (16, RATES[4]): FAILED, (32, RATES[4]): FAILED}
    found = shares(known)
    assert (found[:, 5] < 0.35).all()
    assert (found[1:3, :3] > 0.7).all()
    assert found[1, 2] > found[1, 3] > found[1, 5]


def test_failures_on_both_sides_leave_the_middle() -> None:
    found = shares({(16, RATES[0]): FAILED, (16, RATES[5]): FAILED, (16, RATES[2]): WORKED, (32, RATES[3]): WORKED})
    middle = found[1, 2:4]
    assert middle.min() > found[1, [0, 5]].max()


def test_an_edge_over_batch_size_is_learnt_as_well() -> None:
    found = shares({(32, RATES[1]): FAILED, (32, RATES[3]): FAILED, (8, RATES[1]): WORKED, (8, RATES[4]): WORKED})
    assert found[3].max() < 0.5 < found[0].min()


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(SIZES), st.sampled_from(RATES)), st.sampled_from((WORKED, FAILED)), max_size=20
    )
)
def test_it_is_a_probability_whatever_happened(outcomes: dict[tuple[int, float], TrialOutcome]) -> None:
    found = shares(outcomes)
    assert ((found > 0) & (found <= 1)).all()
