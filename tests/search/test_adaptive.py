from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.core.record import Outcome
from batchlab.search.adaptive import FRUITLESS, AdaptiveSearch
from batchlab.search.budget import runs_planned
from batchlab.search.lattice import Lattice
from batchlab.search.prior import EarlierStudy, Hint
from batchlab.search.repeats import Repeats
from batchlab.search.surrogate import SEED_NOISE
from batchlab.search.trial import Trial, TrialOutcome
from batchlab.storage.decisions import GainBound, StopReason
from batchlab.testing import check_search

SIZES = (8, 16, 32, 64, 128)
RANGE = (3e-4, 1e-2)
Judge = Callable[[Trial], TrialOutcome]


def run(search: AdaptiveSearch, judge: Judge, shuffle: random.Random | None = None) -> list[tuple[Trial, ...]]:
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


def valley(best_lr: float = 2e-3, *, best_batch: float = 32, steep: float = 0.01, diverges: float = math.inf) -> Judge:
    """A valley that the search's own basins do not contain: parabolas, the best rate ∝ √batch at every size."""

    def judge(trial: Trial) -> TrialOutcome:
        if trial.learning_rate > diverges:
            return TrialOutcome(None, why=Outcome.DIVERGED)
        doublings = math.log2(trial.global_batch_size / best_batch)
        over_rate = (math.log2(trial.learning_rate / best_lr) - 0.5 * doublings) ** 2
        return TrialOutcome(3 * (1 + steep * (over_rate + 0.3 * doublings**2)))

    return judge


def excess(search: AdaptiveSearch, judge: Judge) -> float:
    """Loss of the best cell over the valley's bottom of 3, − 1."""
    assert search.best is not None
    return (judge(search.best).val_loss or math.inf) / 3 - 1


@pytest.mark.parametrize("steep", [0.001, 0.01, 0.3])
@pytest.mark.parametrize("best_lr", [2e-3, 5e-2, 1e-5])
def test_the_valley_is_found_also_where_it_lies_beyond_the_range(best_lr: float, steep: float) -> None:
    judge = valley(best_lr, steep=steep)
    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    rounds = run(search, judge)
    # the lattice alone costs up to a quarter doubling in the learning rate; less than noise is not looked for
    assert excess(search, judge) <= steep * (0.25**2 + 0.05) + 0.0005
    assert len(rounds) < 50
    assert search.stopped is not None
    assert search.stopped.reason is StopReason.LITTLE_TO_GAIN
    assert (search.stopped.expected_gain_percent or 0.0) < (search.stopped.least_gain_percent or 0.0)


def test_it_ends_only_with_the_best_enclosed() -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    run(search, valley(1.1e-2, best_batch=64))
    assert search.best is not None
    rates = [trial.learning_rate for trial in search.outcomes if trial.global_batch_size == 64]
    assert min(rates) < search.best.learning_rate < max(rates)
    assert {trial.global_batch_size for trial in search.outcomes} >= {32, 64, 128}


def test_a_good_hint_saves_runs_and_a_wrong_one_does_not_mislead() -> None:
    judge = valley(3e-2, best_batch=128)
    cold, hinted, misled = (
        AdaptiveSearch(SIZES, RANGE, seeds=1, hint=hint) for hint in (None, Hint(120, 2.5e-2), Hint(1, 1e-5))
    )
    lengths = [len(run(search, judge)) for search in (cold, hinted, misled)]
    assert lengths[1] < lengths[0]
    assert all(excess(search, judge) < 0.002 for search in (cold, hinted, misled))


def test_the_first_run_is_a_doubling_below_the_hint_snapped_to_what_is_allowed() -> None:
    first = AdaptiveSearch(SIZES, (1e-3, 8e-3), hint=Hint(50, 6.2e-3)).ask()
    assert first == (Trial(64, 2.83e-3, 0),)


@pytest.mark.parametrize("doublings", [-2, 0, 2])
def test_a_hint_that_is_two_doublings_wrong_costs_no_more_than_none(doublings: int) -> None:
    judge = valley(4e-3)

    def after(runs: int, hint: Hint | None) -> float:
        search = AdaptiveSearch(SIZES, RANGE, seeds=1, max_runs=runs, hint=hint, smallest_gain_percent=0.0)
        run(search, judge)
        return excess(search, judge)

    assert after(8, Hint(32, 4e-3 * 2**doublings)) <= after(8, None) + 0.001


def test_a_cheaper_study_moves_the_start_to_larger_batches_and_widens_its_uncertainty() -> None:
    small = AdaptiveSearch(SIZES, RANGE, seeds=1)
    run(small, valley(2e-3, best_batch=16))
    assert small.best is not None
    same = AdaptiveSearch(SIZES, RANGE, earlier=EarlierStudy(small.outcomes)).ask()[0]
    larger = AdaptiveSearch(SIZES, RANGE, earlier=EarlierStudy(small.outcomes, 20)).ask()[0]
    assert same.global_batch_size == small.best.global_batch_size
    assert abs(math.log2(same.learning_rate / small.best.learning_rate)) <= 0.51
    assert 2 <= larger.global_batch_size / same.global_batch_size <= 8  # 20^0.53 = 4.9


def test_a_study_of_something_else_costs_runs_but_not_the_answer() -> None:
    other = AdaptiveSearch(SIZES, RANGE, seeds=1)
    run(other, valley(1e-4, best_batch=8))
    judge = valley(2e-2, best_batch=128)
    search = AdaptiveSearch(SIZES, RANGE, seeds=1, earlier=EarlierStudy(other.outcomes))
    run(search, judge)
    assert excess(search, judge) < 0.005


@pytest.mark.parametrize("outcomes", [{}, {Trial(8, 1e-3, 0): TrialOutcome(None, why=Outcome.DIVERGED)}])
def test_an_earlier_study_without_a_loss_is_no_harm(outcomes: dict[Trial, TrialOutcome]) -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=1, earlier=EarlierStudy(outcomes, 4.0))
    run(search, valley())
    assert excess(search, valley()) < 0.002


def test_nothing_is_tried_above_a_divergence_at_the_same_size() -> None:
    judge = valley(2e-3, diverges=2.2e-3)
    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    diverged: dict[int, float] = {}
    while trials := search.ask():
        for trial in trials:
            assert trial.learning_rate < diverged.get(trial.global_batch_size, math.inf)
        outcomes = [judge(trial) for trial in trials]
        diverged |= {
            t.global_batch_size: t.learning_rate for t, o in zip(trials, outcomes, strict=True) if not o.val_loss
        }
        search.tell(trials, outcomes)
    assert diverged
    assert search.best is not None
    assert search.best.learning_rate == max(
        trial.learning_rate for trial in search.outcomes if judge(trial).val_loss == judge(search.best).val_loss
    )
    assert excess(search, judge) < 0.005


def test_a_range_that_diverges_throughout_is_left_downwards() -> None:
    judge = valley(5e-5, diverges=1e-4)
    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    run(search, judge)
    assert excess(search, judge) < 0.003


def test_too_little_memory_rules_out_that_size_and_larger_and_no_learning_rate() -> None:
    good = valley(2e-3, best_batch=128)

    def judge(trial: Trial) -> TrialOutcome:
        return TrialOutcome(None, why=Outcome.OUT_OF_MEMORY) if trial.global_batch_size > 16 else good(trial)

    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    run(search, judge)
    lost = [trial for trial in search.outcomes if judge(trial).val_loss is None]
    assert 1 <= len(lost) <= 3
    assert len({trial.global_batch_size for trial in lost}) == len(lost)
    assert search.best is not None
    assert search.best.global_batch_size == 16
    assert abs(math.log2(search.best.learning_rate / 2e-3) + 1.5) <= 0.5


def test_an_undertrained_size_is_not_the_best_and_larger_ones_are_left_alone() -> None:
    good = valley(2e-3, best_batch=128)

    def judge(trial: Trial) -> TrialOutcome:
        return TrialOutcome(good(trial).val_loss, judged=trial.global_batch_size < 64)

    search = AdaptiveSearch(SIZES, RANGE, seeds=3)
    run(search, judge)
    assert search.best is not None
    assert search.best.global_batch_size == 32
    seeded = {trial.global_batch_size for trial in search.outcomes if trial.seed > 0}
    assert seeded == {32, 16}


def test_undertrained_sizes_are_compared_when_all_are() -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    run(search, lambda trial: TrialOutcome(valley()(trial).val_loss, judged=False))
    assert search.best is not None


@pytest.mark.parametrize("why", [None, Outcome.FAILED, Outcome.DIVERGED, Outcome.OUT_OF_MEMORY])
def test_without_any_loss_it_stops_for_that_reason(why: Outcome | None) -> None:
    search = AdaptiveSearch(SIZES, RANGE)
    rounds = run(search, lambda trial: TrialOutcome(None, why=why))
    assert len(rounds) <= FRUITLESS
    assert search.best is None
    assert search.stopped is not None
    assert search.stopped.reason in (StopReason.NO_FINITE_LOSS, StopReason.NO_CELL_LEFT)
    assert search.stopped.finite_runs == 0
    assert search.stopped.expected_gain_percent is None


def test_failures_are_avoided_nearby() -> None:
    def judge(trial: Trial) -> TrialOutcome:
        return TrialOutcome(None, why=Outcome.FAILED) if trial.learning_rate < 1.5e-3 else valley(4e-3)(trial)

    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    run(search, judge)
    assert sum(judge(trial).val_loss is None for trial in search.outcomes) <= 5
    assert excess(search, valley(4e-3)) < 0.002


@pytest.mark.parametrize("loss", [0.0, 2.5, -1.0, 1e300])
def test_identical_losses_end_it_with_that_reason(loss: float) -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    assert len(run(search, lambda trial: TrialOutcome(loss))) == 5
    assert search.stopped is not None
    assert (search.stopped.reason, search.stopped.finite_runs) == (StopReason.EQUAL_LOSSES, 5)


def test_one_size_and_one_learning_rate_are_searched_along_the_other() -> None:
    sizes = AdaptiveSearch(SIZES, (2e-3,), seeds=1)
    run(sizes, valley())
    assert {trial.learning_rate for trial in sizes.outcomes} == {2e-3}
    assert sizes.best == Trial(32, 2e-3, 0)
    rates = AdaptiveSearch((32,), RANGE, seeds=1)
    run(rates, valley())
    assert excess(rates, valley()) < 0.001
    both = AdaptiveSearch((32,), (2e-3,), seeds=2)
    assert [len(trials) for trials in run(both, valley())] == [1, 1]


def test_losses_below_zero_are_searched_too() -> None:
    def judge(trial: Trial) -> TrialOutcome:
        return TrialOutcome((valley()(trial).val_loss or 0.0) - 3.05)

    search = AdaptiveSearch(SIZES, RANGE, seeds=1)
    run(search, judge)
    assert excess(search, valley()) < 0.002


def test_seeds_come_last_at_the_best_and_its_neighbour() -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=3, confirm=2, first_seed=7)
    rounds = run(search, valley())
    assert search.best is not None
    found: dict[tuple[int, float], set[int]] = {}
    for trial in search.outcomes:
        found.setdefault((trial.global_batch_size, trial.learning_rate), set()).add(trial.seed)
    best = (search.best.global_batch_size, search.best.learning_rate)
    assert found[best] == {7, 8, 9, 10, 11}
    assert sum(seeds >= {7, 8, 9} for seeds in found.values()) == 2  # the neighbour too
    assert {trial.seed for trial in rounds[-1]} == {10, 11}
    assert sum(seeds == {7, 8, 9, 10, 11} for seeds in found.values()) == 2  # no rival is spared, however far behind


def test_noise_is_measured_early_and_ends_a_noisy_search_sooner() -> None:
    def noisy(trial: Trial) -> TrialOutcome:
        place = f"global_batch_size={trial.global_batch_size}, learning_rate={trial.learning_rate}, seed={trial.seed}"
        rng = random.Random(f"Trial({place})")
        return TrialOutcome((valley(steep=0.002)(trial).val_loss or 0.0) * (1 + 0.01 * rng.gauss(0, 1)))

    measured, assumed = AdaptiveSearch(SIZES, RANGE, seeds=2), AdaptiveSearch(SIZES, RANGE, seeds=1)
    counts = [len(run(search, noisy)) for search in (measured, assumed)]
    again = [trial for trial in list(measured.outcomes)[:6] if trial.seed == 1]
    assert len(again) == 1
    assert counts[0] < counts[1]
    assert measured.stopped is not None
    assert assumed.stopped is not None
    assert (measured.stopped.bound, measured.stopped.repeated_runs) == (GainBound.MEASURED_NOISE, 2)
    assert (assumed.stopped.bound, assumed.stopped.repeated_runs) == (GainBound.ASSUMED_NOISE, 0)
    assert assumed.stopped.least_gain_percent == SEED_NOISE


def test_a_budget_that_ends_too_early_names_what_is_left_to_gain() -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=1, max_runs=2)
    run(search, valley(steep=0.3))
    assert search.stopped is not None
    assert (search.stopped.reason, search.stopped.runs) == (StopReason.RUNS_SPENT, 2)
    assert (search.stopped.expected_gain_percent or 0.0) > (search.stopped.least_gain_percent or 0.0)


@pytest.mark.parametrize("max_runs", [1, 5, 8, 12])
def test_max_runs_counts_different_cells_and_seeds_come_on_top(max_runs: int) -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=3, confirm=2, max_runs=max_runs, smallest_gain_percent=0.0)
    run(search, valley())
    assert len({(trial.global_batch_size, trial.learning_rate) for trial in search.outcomes}) == max_runs
    most = runs_planned(len(SIZES), 2, Repeats(3, 2), adaptive=True, max_runs=max_runs)
    assert max_runs < len(search.outcomes) <= most


@pytest.mark.parametrize("total_runs", [1, 2, 5, 6, 9, 30])
def test_the_budget_in_runs_is_kept_and_seeds_of_the_best_reserved(total_runs: int) -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=3, total_runs=total_runs, round_size=2)
    run(search, valley())
    assert len(search.outcomes) <= total_runs
    if total_runs >= 9:
        assert search.best is not None
        cell = (search.best.global_batch_size, search.best.learning_rate)
        assert sum((t.global_batch_size, t.learning_rate) == cell for t in search.outcomes) == 3


def test_no_gain_at_all_spends_the_whole_budget_on_different_cells() -> None:
    search = AdaptiveSearch(SIZES, RANGE, seeds=1, max_runs=25, smallest_gain_percent=0.0)
    run(search, valley())
    assert len(search.outcomes) == 25


def test_rounds_are_full_of_different_cells_until_little_is_left_to_gain() -> None:
    search = AdaptiveSearch(SIZES, RANGE, round_size=4, seeds=1)
    rounds = run(search, valley())
    assert len(rounds[0]) == len(rounds[1]) == 4
    trials = [trial for one in rounds for trial in one]
    assert len(trials) == len(set(trials))
    assert excess(search, valley()) < 0.002
    assert len(rounds) < len(run(AdaptiveSearch(SIZES, RANGE, seeds=1), valley()))


@settings(deadline=None, max_examples=15)
@given(
    sizes=st.sets(st.integers(1, 512), min_size=1, max_size=5),
    low=st.integers(-14, -4),
    width=st.integers(0, 6),
    round_size=st.integers(1, 4),
    total_runs=st.integers(1, 10),
    seeds=st.integers(1, 3),
    salt=st.integers(0, 1000),
)
def test_deterministic_bounded_and_independent_of_completion_order(
    sizes: set[int], low: int, width: int, round_size: int, total_runs: int, seeds: int, salt: int
) -> None:
    def judge(trial: Trial) -> TrialOutcome:
        rng = random.Random(f"{salt} {trial}")
        if rng.random() < 0.3:
            return TrialOutcome(None, why=rng.choice([None, *list(Outcome)[1:]]))
        return TrialOutcome(rng.choice([math.nan, 0.0, -1.0, 1e-9, rng.random(), 1e12]), judged=rng.random() < 0.8)

    def make() -> AdaptiveSearch:
        rates = (2.0**low, 2.0 ** (low + width))
        return AdaptiveSearch(list(sizes), rates, round_size=round_size, total_runs=total_runs, seeds=seeds)

    search = make()
    rounds = run(search, judge)
    assert rounds == run(make(), judge, random.Random(salt))
    trials = [trial for one in rounds for trial in one]
    assert len(trials) == len(set(trials)) <= total_runs
    assert {trial.global_batch_size for trial in trials} <= sizes
    assert all(len(one) <= max(round_size, 2 * (seeds - 1)) for one in rounds)
    assert search.stopped


def test_contract() -> None:
    def make() -> Any:
        return AdaptiveSearch(SIZES, RANGE, round_size=3)

    assert len(check_search(make, valley())) > 6


def test_telling_another_round_is_refused() -> None:
    search = AdaptiveSearch(SIZES, RANGE)
    trials = search.ask()
    with pytest.raises(ValueError, match="exactly the round"):
        search.tell([Trial(4, 1.0, 0)], [TrialOutcome(1.0)])
    with pytest.raises(ValueError, match="exactly the round"):
        search.tell(trials, [])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"global_batch_sizes": ()}, "at least one batch size"),
        ({"learning_rates": ()}, "at least one batch size"),
        ({"global_batch_sizes": (0, 4)}, "at least 1"),
        ({"learning_rates": (1e-3, math.nan)}, "positive finite"),
        ({"round_size": 0}, "least is 1"),
        ({"noise_percent": -1.0}, "at least 0"),
        ({"hint": Hint(0, 1e-3)}, "hint"),
        ({"hint": Hint(8, math.inf)}, "hint"),
        ({"earlier": EarlierStudy({}, 0.0)}, "positive number"),
        ({"earlier": EarlierStudy({}), "hint": Hint(8, 1e-3)}, "not from both"),
    ],
)
def test_what_cannot_be_searched_is_an_input_error(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        AdaptiveSearch(**{"global_batch_sizes": SIZES, "learning_rates": RANGE, **arguments})


def test_a_neighbouring_size_is_judged_at_its_own_learning_rate() -> None:
    """The best learning rate is proportional to the size: near the best of a smaller size, a larger one looks worse."""

    def judge(trial: Trial) -> TrialOutcome:
        doublings = math.log2(trial.global_batch_size / 64)
        over_rate = math.log2(trial.learning_rate / 4e-3) - doublings
        return TrialOutcome(3 * (1 + 0.01 * over_rate**2 + 0.001 * doublings**2))

    for low, high in ((3e-4, 1e-2), (1e-4, 1e-3), (4e-3, 4e-2)):
        search = AdaptiveSearch(SIZES, (low, high), seeds=1)
        run(search, judge)
        assert search.best is not None
        assert search.best.global_batch_size == 64


def test_what_encloses_a_neighbouring_size() -> None:
    """The lattice by hand: best 16 at 1e-3, tried at both sides, and its neighbours at 1e-3 only."""
    lattice = Lattice((8, 16, 32), (2.5e-4, 4e-3))
    best = Trial(16, 1e-3, 0)
    tried = {
        Trial(16, 5e-4, 0): 2.1,
        best: 2.0,
        Trial(16, 2e-3, 0): 2.1,
        Trial(8, 1e-3, 0): 2.2,
        Trial(32, 1e-3, 0): 2.2,
    }

    def asked(more: dict[Trial, float], diverged: tuple[Trial, ...] = ()) -> set[tuple[int, float]]:
        outcomes = {trial: TrialOutcome(loss) for trial, loss in {**tried, **more}.items()}
        outcomes |= {trial: TrialOutcome(None, why=Outcome.DIVERGED) for trial in diverged}
        cells = lattice.open_cells(outcomes, best)
        return {(cells.sizes[place], cells.rates[place]) for place in lattice.beside(best, outcomes, cells)}

    assert asked({}) == {(32, 1.41e-3), (32, 2e-3), (8, 7.07e-4), (8, 5e-4)}
    worse = {Trial(32, 2e-3, 0): 2.3, Trial(8, 5e-4, 0): 2.3}
    assert asked(worse) == set()
    scaled = {Trial(32, 2e-3, 0): 2.15, Trial(8, 5e-4, 0): 2.15}  # lower there, and no further is asked
    assert asked(scaled) == set()
    assert asked({Trial(8, 5e-4, 0): 2.3}, (Trial(32, 2e-3, 0),)) == {(32, 1.41e-3)}
