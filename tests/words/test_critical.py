"""What steps to a loss, branches and the noise scale say in words, from findings whose numbers are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.critical.branches import Branch, BranchFinding, branched_critical_batch, doubling_schedule
from batchlab.analysis.critical.finding import CriticalFinding, Effort, LeftOutBranch
from batchlab.analysis.critical.noise_scale import NoiseScale
from batchlab.analysis.critical.noise_series import NoiseSeries
from batchlab.analysis.critical.steps_finding import CriticalBatch, Definition, StepsFinding, StepsReason
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Interval
from batchlab.words.critical import (
    answer_lines,
    beyond_warnings,
    cost_lines,
    disagreement,
    headline,
    measured,
    schedule_lines,
)

TWICE = CriticalBatch(Definition.TWICE_SAMPLES, Interval(40.0, 30.0, 50.0, 6))
TWICE_STEPS = CriticalBatch(Definition.TWICE_STEPS, None, at_least=16.0)
OVERHEAD = CriticalBatch(Definition.OVERHEAD_20, Interval(12.0, 9.0, 15.0, 6), base_batch=4.0)


def noise(value: float, low: float, high: float) -> tuple[NoiseSeries, ...]:
    window = NoiseScale("measured", Interval(value, low, high, 40), None, 1.0, 1.0, 40, 0, 10, 0.0, 1.0, "fieller")
    return (NoiseSeries(32, 1e-3, "run", window, (window,), None, None),)


def branch(*losses: tuple[float, ...]) -> BranchFinding:
    """At batch 8: losses at 1, 2, 4 … × the batch size."""
    branches = [Branch(2.0**i, each) for i, each in enumerate(losses)]
    return branched_critical_batch(branches, batch=8, tolerance=0.01, tokens=100)


ACCEPTED = branch((1.0, 1.1, 1.2), (1.0, 1.1, 1.2), (1.5, 1.6, 1.7))
"""Batch 16 loses nothing, 32 does."""


@pytest.fixture
def tell(synthetic_study: Callable[..., Any]) -> Callable[..., Findings]:
    """Findings with the parts of a critical finding that are given."""
    plain = assemble(*synthetic_study())
    empty = plain.critical
    assert empty is not None

    def with_parts(**parts: Any) -> Findings:
        nothing: dict[str, Any] = {"noise": (), "branches": (), "steps": StepsFinding("cannot_tell")}
        return replace(plain, critical=replace(empty, **{**nothing, **parts}))

    return with_parts


def critical(found: Findings) -> CriticalFinding:
    assert found.critical is not None
    return found.critical


def test_the_headline_names_every_definition(tell: Callable[..., Findings]) -> None:
    steps = StepsFinding("found", twice_steps=TWICE_STEPS, twice_samples=TWICE, overhead=OVERHEAD)
    found = tell(noise=noise(20.0, 18.0, 22.0), steps=steps, branches=(ACCEPTED,))
    assert headline(found) == (
        "B_crit (20 % overhead) 12 [9, 15] · B_crit (2× samples) 40 [30, 50] · B_crit (2× steps) at least 16 · "
        "branched at least 16 and below 32"
    )


def test_the_noise_scale_alone_is_no_critical_batch_size(tell: Callable[..., Findings]) -> None:
    assert (headline(tell()), measured(tell())) == ("", False)
    alone = tell(noise=noise(20.0, 18.0, 22.0))
    assert (headline(alone), measured(alone)) == ("", False)
    assert beyond_warnings(alone.critical, 64) == ()


def test_each_line_has_an_answer_and_its_caveats(tell: Callable[..., Findings]) -> None:
    steps = StepsFinding("at_least", StepsReason.NO_LARGE_SIZE, twice_samples=replace(TWICE, value=None, at_least=40.0))
    found = tell(noise=noise(20.0, 18.0, 22.0), steps=steps, left_out=(LeftOutBranch(16, 4096),))
    lines = {name: (answer, caveat) for name, answer, caveat in answer_lines(found)}
    assert lines["noise scale"][0] == "20 [18, 22] sequences at the end of the run at batch 32"
    assert lines["noise scale"][1] == "From 40 sampled steps."
    assert lines["steps to a loss"][0] == "B_crit (2× samples) at least 40 sequences"
    assert lines["steps to a loss"][1].startswith("No size is large enough to show where steps stop falling.")
    assert lines["branches"] == (
        "cannot tell",
        "batch 16 after 4,096 tokens: a branch has no finite loss (batchlab critical --run).",
    )


def test_numbers_that_agree_or_differ_are_explained(tell: Callable[..., Findings]) -> None:
    steps = StepsFinding("found", twice_samples=TWICE)
    agree = disagreement(tell(noise=noise(30.0, 28.0, 32.0), steps=steps))
    assert "agree within a factor of 1.3" in agree[0]
    differ = disagreement(tell(noise=noise(4.0, 3.0, 5.0), steps=steps, branches=(ACCEPTED,)))
    assert "is 10.0 times below B_crit (2× samples) (40)" in differ[0]
    assert "Branches accept 16, above the noise scale" in differ[1]
    late = StepsFinding("found", twice_samples=replace(TWICE, value=Interval(80.0, 60.0, 90.0, 6)))
    assert (
        "Branches already lose at 32, below B_crit (2× samples)"
        in disagreement(tell(steps=late, branches=(ACCEPTED,)))[0]
    )
    assert "Fewer than two of the three" in disagreement(tell(steps=steps))[0]
    assert "do not contradict each other" in disagreement(tell(steps=steps, branches=(ACCEPTED,)))[0]


def test_a_batch_size_beyond_the_critical_one_is_warned_of_by_every_estimator(tell: Callable[..., Findings]) -> None:
    steps = StepsFinding("found", twice_samples=TWICE, overhead=OVERHEAD)
    found = critical(tell(noise=noise(20.0, 18.0, 22.0), steps=steps, branches=(ACCEPTED,)))
    assert beyond_warnings(found, 64) == (
        "batch 64 is above 12, B_crit (20 % overhead), where a loss takes 20 % more samples than at batch 4",
        "batch 64: a branch at 32 lost more than 0.01 nats (branched)",
    )
    limited = replace(steps, overhead=CriticalBatch(Definition.OVERHEAD_20, None, at_most=15.0))
    assert beyond_warnings(replace(found, steps=limited, branches=(), noise=()), 16) == (
        "batch 16 is above 15, the upper limit of B_crit (20 % overhead)",
    )
    assert beyond_warnings(found, 8) == beyond_warnings(None, 64) == ()


def test_the_schedule_says_when_to_double_and_what_that_costs(tell: Callable[..., Findings]) -> None:
    schedule = doubling_schedule([ACCEPTED], start_batch=8, total_tokens=1000, window_tokens=10)
    first, second, cost = schedule_lines(tell(schedule=schedule))
    assert first.endswith("batch 8 at 1 × the learning rate, 12 steps")
    assert second.endswith("batch 16 at 1.41 × the learning rate, 56 steps")
    assert cost.startswith("45 % fewer steps than at batch 8 throughout. The branches took")
    unchanged = doubling_schedule([], start_batch=8, total_tokens=1000)
    (line,) = schedule_lines(tell(schedule=unchanged))
    assert line.startswith("No batch-size schedule")


def test_costs_are_told_where_there_were_runs(tell: Callable[..., Findings]) -> None:
    lines = cost_lines(tell(steps_effort=Effort(3, 4096, 12.0), branch_effort=Effort()))
    assert lines == (
        "noise scale: no run of its own; sampled steps of the sweep's runs",
        "steps to a loss: 3 runs besides the sweep, 4,096 tokens, 12 s of training",
    )
