"""The answer of the quickstart study, from the losses that each instruction set gave.

The first study has to teach the same everywhere, though every sum differs. The losses are those of whole studies
(benchmarks/instruction_sets/run.py recorded them). Search and analysis are the real ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from batchlab.analysis.findings import Findings
from batchlab.core.experiment import build_experiment
from batchlab.study.task_source import resolve_task
from batchlab.words.evidence import edge_of_axis, held_out
from batchlab.words.trust import trust_items

FOLDER = Path(__file__).parents[2] / "benchmarks" / "instruction_sets"
NAMES = ("replay", "report")
RECORDED = ("all", "sse4")
EXPERIMENT = build_experiment(resolve_task("quickstart"))


@pytest.fixture(scope="module")
def benchmark() -> Iterator[SimpleNamespace]:
    """The benchmark's modules, which import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        for name in NAMES:
            patch.delitem(sys.modules, name, raising=False)
        found = {name: import_module(name) for name in NAMES}
        for name in NAMES:
            patch.delitem(sys.modules, name)
        yield SimpleNamespace(**found)


@pytest.fixture(scope="module")
def studies(benchmark: SimpleNamespace) -> dict[str, Any]:
    found: dict[str, Any] = benchmark.replay.parse((FOLDER / "losses.json").read_text(encoding="utf-8"))
    assert set(RECORDED) <= set(found)
    return found


@pytest.fixture(scope="module")
def findings(benchmark: SimpleNamespace, studies: dict[str, Any]) -> dict[str, Findings]:
    """What each study ends with; a study that would make other runs than it made has no findings."""
    found = {name: benchmark.replay.replay(recorded, EXPERIMENT) for name, recorded in studies.items()}
    assert None not in found.values()
    return found


def test_the_losses_are_of_the_recipe_as_it_is(studies: dict[str, Any]) -> None:
    settings = {
        "model": EXPERIMENT.model,
        "batch_sizes": list(EXPERIMENT.batch.global_batch_sizes),
        "learning_rates": list(EXPERIMENT.sweep.learning_rates or ()),
        "token_budget": EXPERIMENT.budget.token_budget,
        "sequence_length": EXPERIMENT.sequence_length,
        "samples": EXPERIMENT.evaluation.samples,
    }
    for recorded in studies.values():
        assert recorded.settings == settings, "record again: benchmarks/instruction_sets/run.py"


def test_the_instructions_gave_other_losses_on_the_same_text(studies: dict[str, Any]) -> None:
    assert len({recorded.environment["instruction_set"] for recorded in studies.values()}) == len(studies) >= 2
    shared = set.intersection(*(set(recorded.runs) for recorded in studies.values()))
    assert len(shared) >= len(EXPERIMENT.batch.global_batch_sizes) * len(EXPERIMENT.sweep.learning_rates or ())
    assert all(len({recorded.runs[run].val_loss for recorded in studies.values()}) > 1 for run in shared)


def test_the_answer_is_the_same(benchmark: SimpleNamespace, findings: dict[str, Findings]) -> None:
    answers = {name: benchmark.replay.answer_of(found) for name, found in findings.items()}
    assert None not in answers.values()
    assert len(set(answers.values())) == 1, answers


@pytest.mark.parametrize("name", RECORDED)
def test_the_best_lies_inside_both_axes_and_every_condition_holds(findings: dict[str, Findings], name: str) -> None:
    found = findings[name]
    assert found.surface is not None
    assert found.surface.best is not None
    assert found.recommended is not None
    sizes = EXPERIMENT.batch.global_batch_sizes
    assert sizes[0] < found.recommended.layout.global_batch_size < sizes[-1]
    rates = [cell.learning_rate for cell in found.surface.best.cells]
    assert min(rates) < found.recommended.learning_rate < max(rates)
    assert {item.label: item.ok for item in trust_items(found)} == {item.label: True for item in trust_items(found)}
    assert not edge_of_axis(found.surface)
    assert not held_out(found)


@pytest.mark.parametrize("name", RECORDED)
def test_the_study_teaches_that_the_learning_rate_follows_the_batch_size(
    findings: dict[str, Findings], name: str
) -> None:
    """And that a larger batch costs tokens, while a smaller one is slower."""
    found = findings[name]
    assert found.surface is not None
    assert found.recommended is not None
    rates = [row.best.learning_rate for row in found.surface.rows if row.best]
    assert rates == sorted(set(rates))
    assert len(rates) == len(EXPERIMENT.batch.global_batch_sizes)
    chosen = found.recommended.layout.global_batch_size
    larger = next(cost for cost in found.costs if cost.global_batch_size > chosen)
    assert larger.tokens is not None
    assert larger.tokens.low is not None
    assert larger.tokens.low > EXPERIMENT.sweep.tolerance
    slower = next(cost for cost in found.costs if cost.global_batch_size < chosen)
    assert slower.time_per_token is not None
    assert slower.time_per_token > 1


@pytest.mark.parametrize("name", RECORDED)
def test_the_answer_hangs_on_no_single_seed_and_on_no_speed(
    benchmark: SimpleNamespace, studies: dict[str, Any], findings: dict[str, Findings], name: str
) -> None:
    expected = benchmark.replay.answer_of(findings[name])
    for answers in (benchmark.report.without_a_seed, benchmark.report.at_other_speeds):
        assert set(answers(studies[name], EXPERIMENT)) == {expected}


@pytest.mark.parametrize("name", RECORDED)
def test_the_answer_stays_where_every_loss_is_moved_as_by_other_instructions(
    benchmark: SimpleNamespace, studies: dict[str, Any], findings: dict[str, Findings], name: str
) -> None:
    """results.md has 200 draws of this, and of other seeds."""
    spread = benchmark.report.rms_differences(list(studies.values()))
    answers = benchmark.report.moved(studies[name], EXPERIMENT, spread, 5, np.random.default_rng(1))
    assert set(answers) == {benchmark.replay.answer_of(findings[name])}


def test_a_run_that_was_not_recorded_is_no_answer(benchmark: SimpleNamespace, studies: dict[str, Any]) -> None:
    """Where the smallest size is the best, another neighbour or seed is asked for."""

    def smallest_is_best(run: tuple[int, float, int, int], loss: float) -> float:
        return loss - 2.0 * (run[0] == EXPERIMENT.batch.global_batch_sizes[0])

    changed = studies["all"].with_losses(smallest_is_best)
    assert benchmark.replay.replay(changed, EXPERIMENT) is None
