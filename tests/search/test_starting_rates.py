from __future__ import annotations

from itertools import pairwise

import pytest

from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.search.starting_rates import VALUES, StartFrom, starting_rates

ADAMW = OptimizerGroup(optimizer="AdamW", learning_rate_ratio=0.1, beta2=0.95, parameter_count=900)


def muon(ratio: float = 1.0, *, like_adamw: bool = False) -> OptimizerGroup:
    return OptimizerGroup(optimizer="Muon", learning_rate_ratio=ratio, sized_like_adamw=like_adamw, parameter_count=100)


@pytest.mark.parametrize("usual", StartFrom)
def test_four_rates_about_a_factor_three_apart(usual: StartFrom) -> None:
    assert len(VALUES[usual]) == 4
    assert all(2.9 < high / low < 3.5 for low, high in pairwise(VALUES[usual]))


@pytest.mark.parametrize(("family", "centre"), [("adam", 1e-3), ("sgd", 0.1), ("other", 1e-2)])
def test_without_muon_the_family_decides(family: str, centre: float) -> None:
    assert centre in starting_rates(family, [ADAMW]).values


def test_muon_starts_around_the_default_of_its_authors() -> None:
    assert 0.02 in starting_rates("other", [ADAMW, muon()]).values
    both = [group.model_copy(update={"optimizer": "MuonWithAuxAdam"}) for group in (ADAMW, muon(2.0))]
    assert 0.01 in starting_rates("other", both).values  # the group without betas is Muon's


def test_scaled_to_adamw_it_starts_where_adamw_does() -> None:
    assert starting_rates("other", [muon(like_adamw=True), ADAMW]).values == VALUES[StartFrom.ADAM]


@pytest.mark.parametrize("ratio", [20.0, 0.5])
def test_muons_own_learning_rate_is_what_starts_there(ratio: float) -> None:
    found = starting_rates("other", [ADAMW, muon(ratio)])
    assert [value * ratio for value in found.values] == pytest.approx(VALUES[StartFrom.MUON])
    assert found.ratio == ratio


def test_the_larger_of_two_muons_decides() -> None:
    small = muon(like_adamw=True).model_copy(update={"parameter_count": 10})
    assert starting_rates("other", [small, muon()]).usual_for is StartFrom.MUON
