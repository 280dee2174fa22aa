from __future__ import annotations

from dataclasses import replace

from tests.analysis.test_comparison import side

from batchlab.analysis.comparison import Setting, compare
from batchlab.core.batch import Unit
from batchlab.words.comparison import describe_comparison, describe_verdict, format_values


def test_the_better_side_is_named_with_what_that_is_worth() -> None:
    one, other = side("a", [2.0, 2.001, 1.999]), side("b", [1.97, 1.971, 1.969])

    assert describe_verdict(compare(one, other)).startswith("b better by 1.5 % [1.4, 1.6] of the loss, worth 22 % [")
    assert describe_verdict(compare(other, one)).startswith("b better by 1.5 % [1.4, 1.7] of the loss, worth 22 % [")


def test_beyond_the_measured_slope_only_the_least_is_told() -> None:
    one, other = side("a", [2.0, 2.001, 1.999]), side("b", [1.95, 1.951, 1.949])

    assert describe_verdict(compare(one, other)).endswith("of the loss, worth at least 27 % fewer tokens.")
    assert describe_verdict(compare(other, one)).endswith("of the loss, worth at least 27 % fewer tokens.")


def test_within_noise_says_what_would_resolve_it() -> None:
    text = describe_verdict(compare(side("a", [2.0, 2.01, 1.99]), side("b", [2.0, 2.02, 1.99])))

    assert text.startswith("Within noise: b against a, +0.2 % [")
    assert text.endswith("more seeds at both would resolve 0.2 %.")


def test_not_tested() -> None:
    text = describe_verdict(compare(side("a", [], confirmed=False), side("b", [], confirmed=False)))

    assert text.startswith("Not tested: the loss of b is 0 % higher than that of a")


def test_every_obstacle_is_told() -> None:
    other = replace(side("b", [2.0]), unit=Unit.SAMPLES, sequence_length=256, held_out="x", token_budget=1, best=None)

    text = describe_verdict(compare(side("a", [2.0]), other))

    assert text.startswith("b cannot be compared with a, because b has no run with a loss")
    assert text.count("; and ") == 4


def test_equal_time_and_equal_tokens_are_refused_in_one_sentence() -> None:
    one, other = side("a", [2.0, 2.01]), replace(side("b", [1.9, 1.91]), run_seconds=300.0)
    text = describe_verdict(compare(one, other))
    assert text == (
        "b cannot be compared with a, because b gave every run the same time (--run-time) and a the same tokens; "
        "study both in one of the two ways."
    )
    longer = describe_verdict(compare(replace(one, run_seconds=600.0), other))
    assert longer.endswith("because their runs train for different times (10 min and 5 min).")
    timed = replace(side("a", [2.0, 2.001, 1.999]), run_seconds=300.0)
    better = replace(side("b", [1.97, 1.971, 1.969]), run_seconds=300.0)
    assert describe_verdict(compare(timed, better)).endswith("less time.")


def test_losses_caveats_and_settings_follow() -> None:
    other = replace(side("b", [2.0, 2.1], confirmed=False), held_out="", settings={"schedule.kind": "wsd", "name": "a"})
    one = replace(side("a", [2.0, 2.1]), cells=side("a", [2.0, 2.1]).cells * 2)

    _, *lines = describe_comparison(compare(one, other))

    assert lines[0] == "a: 2.050 at batch 16, LR 1.0e-3 (2 confirmation seeds)."
    assert lines[1] == "b: 2.033 at batch 16, LR 1.0e-3 (3 seeds)."
    assert "flatters" in lines[2]
    assert lines[-2:] == ["One setting differs:", "  schedule.kind: cosine | wsd"]


def test_long_lists_are_told_by_their_ends_unless_they_differ_only_inside() -> None:
    rates = ", ".join(f"{rate / 1000:g}" for rate in range(1, 98))
    assert format_values(Setting("sweep.learning_rates", rates, "")) == ("0.001 … 0.097 (97 values)", "unset")
    inside = rates.replace("0.002", "0.0025")
    assert format_values(Setting("sweep.learning_rates", rates, inside)) == (rates, inside)
