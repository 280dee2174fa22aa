from __future__ import annotations

from batchlab.search.repeats import Repeats
from batchlab.search.trial import Trial, TrialOutcome

FIRST = {
    Trial(8, 1e-3, 0): 2.2,
    Trial(16, 1e-3, 0): 2.0,
    Trial(16, 2e-3, 0): 2.1,
    Trial(32, 1e-3, 0): 2.05,
}


def told(losses: dict[Trial, float]) -> dict[Trial, TrialOutcome]:
    return {trial: TrialOutcome(loss) for trial, loss in losses.items()}


def test_more_seeds_first_then_confirmation_seeds_at_the_two_within_noise() -> None:
    repeats = Repeats(seeds=2, confirm=2)
    first = repeats.next(told(FIRST), 99)
    assert first == (Trial(16, 1e-3, 1), Trial(32, 1e-3, 1))
    close = FIRST | {Trial(16, 1e-3, 1): 2.08, Trial(32, 1e-3, 1): 1.99}
    confirming = repeats.next(told(close), 99)
    assert confirming == tuple(Trial(size, 1e-3, seed) for size in (32, 16) for seed in (2, 3))  # 32 leads by its mean
    assert repeats.next(told(close | dict.fromkeys(confirming, 2.0)), 99) == ()
    assert repeats.runs(3) >= len(first) + len(confirming)


def test_no_rival_is_spared_however_far_behind() -> None:
    losses = FIRST | {Trial(16, 1e-3, 1): 2.001, Trial(32, 1e-3, 1): 2.051}
    assert {trial.global_batch_size for trial in Repeats(2, 2).next(told(losses), 99)} == {16, 32}


def test_what_the_budget_leaves_is_kept_to() -> None:
    assert Repeats(seeds=3, confirm=2).next(told(FIRST), 1) == (Trial(16, 1e-3, 1),)
    assert Repeats(seeds=3, confirm=2).next(told(FIRST), 0) == ()


def test_one_seed_is_confirmed_at_the_best_alone_unless_nothing_separates() -> None:
    assert Repeats(seeds=1, confirm=0).next(told(FIRST), 99) == ()
    assert {t.seed for t in Repeats(seeds=1, confirm=2).next(told(FIRST), 99)} == {1, 2}


def test_without_a_loss_nothing_is_repeated() -> None:
    assert Repeats(3, 2).next({Trial(8, 1e-3, 0): TrialOutcome(None)}, 99) == ()


def test_a_repeat_that_fails_is_not_asked_for_again() -> None:
    outcomes = told(FIRST) | {trial: TrialOutcome(None) for trial in Repeats(2, 0).next(told(FIRST), 99)}
    assert Repeats(2, 0).next(outcomes, 99) == ()
