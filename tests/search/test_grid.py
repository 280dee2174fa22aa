from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.core.protocols import Search
from batchlab.search.grid import (
    GridSearch,
    runs_at_most,
    runs_expected,
)
from batchlab.search.repeats import Repeats
from batchlab.search.trial import Trial, TrialOutcome

RATES = (1e-3, 2e-3, 4e-3, 8e-3)
Judge = Callable[[Trial], TrialOutcome]


def run(search: GridSearch, judge: Judge, shuffle: random.Random | None = None) -> list[tuple[Trial, ...]]:
    """Every round of a search; `shuffle` reports each round's outcomes in another order."""
    rounds = []
    while trials := search.ask():
        assert search.ask() == trials
        rounds.append(trials)
        told = list(trials)
        if shuffle:
            shuffle.shuffle(told)
        search.tell(told, [judge(trial) for trial in told])
        assert len(rounds) < 100
    return rounds


def basin(best_lr: float, *, best_batch: float = 16, steep: float = 1.0) -> Judge:
    """Loss with its minimum at `best_lr` for every size, and at `best_batch` over sizes."""

    def judge(trial: Trial) -> TrialOutcome:
        over_lr = math.log2(trial.learning_rate / best_lr) ** 2
        return TrialOutcome(2 + steep * over_lr + 0.1 * math.log2(trial.global_batch_size / best_batch) ** 2)

    return judge


def test_it_is_a_search() -> None:
    search: Search[Trial, TrialOutcome] = GridSearch((4,), RATES)
    assert search.ask()


def test_coarse_rounds_first_then_seeds_at_best_and_neighbour() -> None:
    rounds = run(GridSearch((8, 16, 32), RATES), basin(2.5e-3, best_batch=20))
    assert [{t.learning_rate for t in trials} for trials in rounds[:2]] == [{1e-3, 4e-3}, {2e-3, 8e-3}]
    assert all({t.global_batch_size for t in trials} == {8, 16, 32} for trials in rounds[:2])
    assert all(t.seed == 0 for trials in rounds[:2] for t in trials)
    # 16 is the best (log2 distance .32 against .68), 32 the better of its neighbours; their best cell is 2e-3
    assert Counter((t.global_batch_size, t.seed) for t in rounds[2]) == Counter(
        {(16, 1): 1, (16, 2): 1, (32, 1): 1, (32, 2): 1}
    )
    assert {t.learning_rate for t in rounds[2]} == {2e-3}
    assert len(rounds) == 3


@pytest.mark.parametrize(("best_lr", "found"), [(16e-3, 16e-3), (64e-3, 64e-3), (0.5e-3, 0.5e-3), (0.125e-3, 0.125e-3)])
def test_extension_ends_at_the_known_optimum(best_lr: float, found: float) -> None:
    search = GridSearch((4, 8), RATES, seeds=1)
    run(search, basin(best_lr))
    for size in (4, 8):
        tried = {t.learning_rate: o.val_loss for t, o in search.outcomes.items() if t.global_batch_size == size}
        losses = {rate: loss for rate, loss in tried.items() if loss is not None}
        assert losses.keys() == tried.keys()
        assert min(losses, key=lambda rate: losses[rate]) == pytest.approx(found)


def test_extension_stops_one_beyond_the_optimum_and_never_exceeds_the_maximum() -> None:
    search = GridSearch((4,), RATES, seeds=1)
    run(search, basin(16e-3))
    assert sorted({t.learning_rate for t in search.outcomes}) == pytest.approx([*RATES, 16e-3, 32e-3])
    far = GridSearch((4,), RATES, seeds=1, max_extensions=3)
    run(far, basin(10.0))
    assert sorted({t.learning_rate for t in far.outcomes}) == pytest.approx([*RATES, 16e-3, 32e-3, 64e-3])


def test_no_extension_towards_a_side_whose_edge_neighbour_diverged() -> None:
    def judge(trial: Trial) -> TrialOutcome:
        return TrialOutcome(None if trial.learning_rate > 5e-3 else 1 / trial.learning_rate)

    search = GridSearch((4, 8), RATES, seeds=1)
    run(search, judge)
    assert {t.learning_rate for t in search.outcomes} == set(RATES)


def test_a_diverged_cell_is_worse_than_any_finite_one() -> None:
    def judge(trial: Trial) -> TrialOutcome:
        return TrialOutcome(1e9 if trial.learning_rate == 2e-3 else None)

    rounds = run(GridSearch((4,), RATES, seeds=2), judge)
    assert rounds[-1] == (Trial(4, 2e-3, 1),)


def test_everything_diverged_ends_after_the_grid() -> None:
    rounds = run(GridSearch((4, 8), RATES), lambda trial: TrialOutcome(None))
    assert sum(map(len, rounds)) == 8


def test_not_a_number_counts_as_diverged() -> None:
    rounds = run(GridSearch((4, 8), RATES), lambda trial: TrialOutcome(math.nan))
    assert sum(map(len, rounds)) == 8


def test_single_learning_rate_is_never_extended() -> None:
    rounds = run(GridSearch((4, 8, 16), (1e-3,)), basin(1.0))
    assert [len(trials) for trials in rounds] == [3, 4]


def test_single_batch_size_gets_seeds_at_its_best_cell_only() -> None:
    rounds = run(GridSearch((16,), RATES, first_seed=5), basin(2e-3))
    assert rounds[-1] == (Trial(16, 2e-3, 6), Trial(16, 2e-3, 7))


def test_undertrained_sizes_are_run_but_neither_extended_nor_seeded() -> None:
    good = basin(64e-3, best_batch=64)

    def judge(trial: Trial) -> TrialOutcome:
        return TrialOutcome(good(trial).val_loss, judged=trial.global_batch_size < 32)

    rounds = run(GridSearch((8, 16, 32, 64), RATES), judge)
    assert {t.global_batch_size for t in rounds[0]} == {8, 16, 32, 64}
    assert {t.global_batch_size for trials in rounds[2:] for t in trials} == {8, 16}


def test_undertrained_sizes_are_used_when_there_is_no_other() -> None:
    rounds = run(GridSearch((8, 16), RATES), lambda trial: TrialOutcome(trial.learning_rate, judged=False))
    assert {t.seed for t in rounds[-1]} == {1, 2}


def test_telling_another_round_is_refused() -> None:
    search = GridSearch((4,), RATES)
    search.ask()
    with pytest.raises(ValueError, match="exactly the round"):
        search.tell([Trial(4, 1.0, 0)], [TrialOutcome(1.0)])


@pytest.mark.parametrize("max_runs", [1, 5, 12])
def test_max_runs_counts_cells_and_seeds_come_on_top(max_runs: int) -> None:
    search = GridSearch((8, 16, 32), RATES, max_runs=max_runs)
    trials = [trial for one in run(search, basin(2e-3)) for trial in one]
    assert sum(trial.seed == 0 for trial in trials) == max_runs
    assert {trial.seed for trial in trials} == {0, 1, 2}


@pytest.mark.parametrize("max_runs", range(1, 30))
def test_total_runs_keep_every_size_first_then_seeds_of_the_best(max_runs: int) -> None:
    search = GridSearch((8, 16, 32), RATES, total_runs=max_runs)
    rounds = run(search, basin(2e-3))
    trials = [trial for one in rounds for trial in one]
    assert len(trials) <= max_runs
    if max_runs >= 3:
        assert {t.global_batch_size for t in trials} == {8, 16, 32}
    if max_runs >= 5:
        losses = {trial: outcome.val_loss or 0.0 for trial, outcome in search.outcomes.items() if trial.seed == 0}
        best = min(losses, key=lambda trial: (losses[trial], trial))
        cell = (best.global_batch_size, best.learning_rate)
        assert sorted(t.seed for t in trials if (t.global_batch_size, t.learning_rate) == cell) == [0, 1, 2]
    if max_runs >= 16:
        assert len(trials) == 16


@given(
    sizes=st.sets(st.integers(1, 512), min_size=1, max_size=5),
    exponents=st.sets(st.integers(-12, 0), min_size=1, max_size=6),
    seeds=st.integers(1, 4),
    extensions=st.integers(0, 4),
    max_runs=st.one_of(st.none(), st.integers(1, 40)),
    salt=st.integers(),
    undertrained_from=st.integers(1, 600),
)
def test_deterministic_bounded_and_independent_of_completion_order(
    sizes: set[int],
    exponents: set[int],
    seeds: int,
    extensions: int,
    max_runs: int | None,
    salt: int,
    undertrained_from: int,
) -> None:
    rates = [2.0**e for e in exponents]

    def judge(trial: Trial) -> TrialOutcome:
        rng = random.Random(f"{salt} {trial}")
        loss = None if rng.random() < 0.2 else rng.random()
        return TrialOutcome(loss, judged=trial.global_batch_size < undertrained_from)

    def make() -> GridSearch:
        return GridSearch(list(sizes), rates, seeds=seeds, max_extensions=extensions, total_runs=max_runs)

    rounds = run(make(), judge)
    assert rounds == run(make(), judge, random.Random(salt))
    trials = [trial for one in rounds for trial in one]
    assert len(trials) == len(set(trials))
    assert len(trials) <= runs_at_most(len(sizes), len(rates), Repeats(seeds), extensions)
    if max_runs is not None:
        assert len(trials) <= max_runs
    else:
        assert len(trials) >= len(sizes) * len(rates)
        for size in sizes:
            tried = {t.learning_rate for t in trials if t.global_batch_size == size}
            assert set(rates) <= tried
            assert len(tried) <= len(rates) + extensions


def test_expected_runs_are_those_of_a_search_without_extensions() -> None:
    rounds = run(GridSearch((8, 16, 32), RATES), basin(2e-3))
    assert sum(map(len, rounds)) == runs_expected(3, 4, Repeats())


@pytest.mark.parametrize(("sizes", "rates"), [((), RATES), ((4,), ()), ((0,), RATES), ((4,), (math.nan,))])
def test_an_impossible_grid_is_refused(sizes: tuple[int, ...], rates: tuple[float, ...]) -> None:
    with pytest.raises(InputError):
        GridSearch(sizes, rates)


def test_a_rule_centres_the_grid_of_every_size_and_extends_it_there() -> None:
    """The linear rule from batch 8, on a surface whose best learning rate is far above the grid."""
    search = GridSearch((4, 8, 16), RATES, seeds=1, max_extensions=1, scale={4: 0.5, 8: 1.0, 16: 2.0})
    rounds = run(search, basin(1.0, best_batch=8))
    tried = {
        size: sorted(t.learning_rate for t in search.outcomes if t.global_batch_size == size) for size in (4, 8, 16)
    }
    assert tried[8][:-1] == pytest.approx(list(RATES))
    assert tried[4] == pytest.approx([rate / 2 for rate in tried[8]], rel=1e-2)
    assert tried[16] == pytest.approx([2 * rate for rate in tried[8]], rel=1e-2)
    assert len(rounds) == 3
