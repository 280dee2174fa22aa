from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.protocols import Search
from batchlab.search.adaptive import AdaptiveSearch
from batchlab.search.grid import GridSearch
from batchlab.search.prior import Hint
from batchlab.search.repeats import Repeats, best_by_size
from batchlab.search.trial import Trial, TrialOutcome
from batchlab.search.warmups import WarmupSearch
from batchlab.storage.decisions import StopReason
from batchlab.testing import check_search

SIZES = (8, 16, 32)
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
WARMUPS = (0.01, 0.04, 0.16)
BEST_WARMUP = {8: 0.01, 16: 0.04, 32: 0.16}


def best_rate(warmup: float) -> float:
    """A longer warm-up allows a higher learning rate."""
    return 2e-3 * (warmup / 0.01) ** 0.5


def judge(trial: Trial) -> TrialOutcome:
    """Batch 16 is best; each batch size has its own best warm-up, and each warm-up its own best learning rate."""
    assert trial.warmup_fraction is not None
    size = trial.global_batch_size
    return TrialOutcome(
        2
        + 0.2 * math.log2(size / 16) ** 2
        + 0.05 * math.log2(trial.warmup_fraction / BEST_WARMUP[size]) ** 2
        + math.log2(trial.learning_rate / best_rate(trial.warmup_fraction)) ** 2
    )


def grid(most: int, earlier: Trial | None) -> GridSearch:
    return GridSearch(SIZES, RATES, seeds=1, max_runs=most)


def adaptive(most: int, earlier: Trial | None) -> AdaptiveSearch:
    hint = Hint(earlier.global_batch_size, earlier.learning_rate) if earlier else None
    return AdaptiveSearch(SIZES, (1e-3, 8e-3), hint=hint, max_runs=min(most, 16), seeds=1)


def test_it_is_a_search_whatever_searches_the_cells() -> None:
    repeats = Repeats(3, 2)
    check_search(lambda: WarmupSearch(WARMUPS, grid, repeats), judge)
    check_search(lambda: WarmupSearch(WARMUPS, adaptive, repeats), judge)


def run(search: Search[Trial, TrialOutcome]) -> None:
    while trials := search.ask():
        search.tell(trials, [judge(trial) for trial in trials])


@pytest.mark.parametrize("begin", [grid, adaptive])
def test_every_batch_size_gets_its_best_warmup_and_learning_rate(begin: object) -> None:
    search = WarmupSearch(WARMUPS, grid if begin is grid else adaptive, Repeats(3, 2))
    run(search)
    loss, best = best_by_size(search.outcomes, 0)[16]
    assert best.warmup_fraction == 0.04
    assert best.learning_rate == pytest.approx(best_rate(0.04), rel=0.01)
    assert min(found[0] for found in best_by_size(search.outcomes, 0).values()) == loss
    if begin is grid:
        found = {size: trial.warmup_fraction for size, (_, trial) in best_by_size(search.outcomes, 0).items()}
        assert found == BEST_WARMUP


def test_seeds_go_to_the_best_cell_its_neighbour_and_the_same_size_at_the_other_warmups() -> None:
    repeats = Repeats(3, 2)
    search = WarmupSearch(WARMUPS, grid, repeats)
    run(search)
    repeated = {(t.global_batch_size, t.warmup_fraction) for t in search.outcomes if t.seed > 0}
    neighbour = next(place for place in repeated if place[0] != 16)
    assert repeated == {(16, 0.01), (16, 0.04), (16, 0.16), neighbour}
    assert BEST_WARMUP[neighbour[0]] == neighbour[1]
    assert sum(trial.seed > 0 for trial in search.outcomes) == repeats.runs(len(SIZES), len(WARMUPS)) == 4 * 4


def test_a_later_warmup_starts_where_the_earlier_ones_ended() -> None:
    starts: list[Trial | None] = []

    def begin(most: int, earlier: Trial | None) -> GridSearch:
        starts.append(earlier)
        return grid(most, earlier)

    run(WarmupSearch(WARMUPS, begin, Repeats(1)))
    assert starts == [None, Trial(8, 2e-3, 0), Trial(16, 4e-3, 0)]


def test_why_the_searches_ended_counts_the_runs_of_all() -> None:
    search = WarmupSearch(WARMUPS, adaptive, Repeats(1), max_runs=9)
    assert search.stopped is None
    run(search)
    assert search.stopped is not None
    assert search.stopped.reason is StopReason.RUNS_SPENT
    assert search.stopped.runs == len(search.outcomes) == 9
    assert {sum(t.warmup_fraction == warmup for t in search.outcomes) for warmup in WARMUPS} == {3}
    finished = WarmupSearch(WARMUPS, grid, Repeats(1))
    run(finished)
    assert finished.stopped is None


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 4), st.integers(0, 2))
def test_limits_hold(max_runs: int, total_runs: int, seeds: int, confirm: int) -> None:
    search = WarmupSearch(WARMUPS, grid, Repeats(seeds, confirm), max_runs=max_runs, total_runs=total_runs)
    run(search)
    assert sum(trial.seed == 0 for trial in search.outcomes) <= max_runs
    assert len(search.outcomes) <= total_runs
