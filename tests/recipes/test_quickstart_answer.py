"""The answer of the quickstart study, from the losses that two instruction sets gave.

The first study has to teach the same everywhere, though every sum differs. The losses are those of whole studies:
benchmarks/instruction_sets/run.py recorded them. The analysis is the real one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.record import Outcome, Record, TaskInfo, ThroughputResult, TrainResult
from batchlab.core.spec import Spec, ThroughputSpec, TrainSpec, Workload, run_id
from batchlab.study.task_source import resolve_task
from batchlab.words.trust import trust_items

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "quickstart_losses.json").read_text(encoding="utf-8")
)
EXPERIMENT = build_experiment(resolve_task("quickstart"))


@pytest.fixture(scope="module")
def answers() -> dict[str, Findings]:
    return {name: findings(recorded, EXPERIMENT) for name, recorded in RECORDED.items()}


def findings(recorded: dict[str, Any], experiment: Experiment) -> Findings:
    """What the study makes of the recorded runs and speeds."""
    workload = Workload(task=experiment.task, sequence_length=experiment.sequence_length)
    records: list[tuple[Spec, Record]] = []
    for size, speed in recorded["tokens_per_second"].items():
        throughput = ThroughputSpec(workload=workload, layout=layout(int(size), experiment))
        result = ThroughputResult(
            tokens_per_second=speed,
            tokens_per_second_blocks=(speed,) * 5,
            step_seconds=throughput.layout.tokens_per_step / speed,
            warmup_seconds=0.1,
        )
        records.append((throughput, Record(run_id=run_id(throughput), outcome=Outcome.COMPLETED, result=result)))
    for size, rate, seed, tokens, outcome, loss, error in recorded["runs"]:
        spec = TrainSpec(
            workload=workload,
            layout=layout(size, experiment),
            learning_rate=rate,
            seed=seed,
            token_budget=tokens,
            schedule=experiment.schedule,
            evaluation_interval=tokens // experiment.evaluation.points,
        )
        trained = TrainResult(
            steps=spec.steps,
            tokens=tokens,
            val_loss=loss,
            val_error=error,
        )
        record = Record(run_id=run_id(spec), outcome=Outcome(outcome), result=trained, pairing="verified")
        records.append((spec, record))
    info = TaskInfo(
        unit=experiment.unit,
        sequence_length=experiment.sequence_length,
        train_samples=1,
        valid_samples=1,
        parameter_count=1,
        optimizer_family="adam",
        data_source="recorded",
        data_digest="",
        device="cpu",
    )
    return assemble(experiment, info, records)


def layout(size: int, experiment: Experiment) -> BatchLayout:
    return BatchLayout(global_batch_size=size, micro_batch_size=size, sequence_length=experiment.sequence_length)


def answer(found: Findings) -> tuple[object, ...]:
    """Batch size and LR of the recommendation, the sizes tied with it, the size that is soonest."""
    assert found.surface is not None
    assert found.recommended is not None
    chosen = found.recommended
    soonest = next((other for other in found.recommendations if other.goal == "soonest"), None)
    tied = tuple((cell.global_batch_size, cell.learning_rate) for cell in found.surface.tied_cells)
    return (
        (chosen.layout.global_batch_size, chosen.learning_rate),
        tied,
        soonest.layout.global_batch_size if soonest else None,
    )


@pytest.mark.parametrize("name", RECORDED)
def test_the_losses_are_of_the_recipe_as_it_is(name: str) -> None:
    settings = {
        "model": EXPERIMENT.model,
        "batch_sizes": list(EXPERIMENT.batch.global_batch_sizes),
        "learning_rates": list(EXPERIMENT.sweep.learning_rates or ()),
        "token_budget": EXPERIMENT.budget.token_budget,
        "sequence_length": EXPERIMENT.sequence_length,
        "samples": EXPERIMENT.evaluation.samples,
    }
    assert RECORDED[name]["settings"] == settings, "record again: benchmarks/instruction_sets/run.py"


def test_the_instruction_sets_gave_other_losses() -> None:
    losses = [{tuple(run[:4]): run[5] for run in recorded["runs"]} for recorded in RECORDED.values()]
    assert len({recorded["environment"]["instruction_set"] for recorded in RECORDED.values()}) == len(RECORDED) >= 2
    shared = set.intersection(*map(set, losses))
    assert len(shared) >= len(EXPERIMENT.batch.global_batch_sizes) * len(EXPERIMENT.sweep.learning_rates or ())
    assert all(len({found[cell] for found in losses}) > 1 for cell in shared)


def test_the_answer_is_the_same(answers: dict[str, Findings]) -> None:
    assert len({answer(found) for found in answers.values()}) == 1, {n: answer(f) for n, f in answers.items()}


@pytest.mark.parametrize("name", RECORDED)
def test_the_best_lies_inside_both_axes_and_every_condition_holds(answers: dict[str, Findings], name: str) -> None:
    found = answers[name]
    assert found.surface is not None
    assert found.surface.best is not None
    assert found.recommended is not None
    sizes = EXPERIMENT.batch.global_batch_sizes
    assert sizes[0] < found.surface.best.global_batch_size < sizes[-1]
    assert sizes[0] < found.recommended.layout.global_batch_size < sizes[-1]
    rates = [cell.learning_rate for cell in found.surface.best.cells]
    assert min(rates) < found.recommended.learning_rate < max(rates)
    assert {item.label: item.ok for item in trust_items(found)} == {item.label: True for item in trust_items(found)}


@pytest.mark.parametrize("name", RECORDED)
def test_it_stays_where_one_seed_less_was_run(answers: dict[str, Findings], name: str) -> None:
    """Leaving out any one further seed, everywhere: the answer hangs on no single run."""
    recorded, whole = RECORDED[name], answer(answers[name])
    for seed in sorted({run[2] for run in recorded["runs"]} - {0}):
        kept = [run for run in recorded["runs"] if run[2] != seed or run[3] != EXPERIMENT.budget.token_budget]
        assert answer(findings({**recorded, "runs": kept}, EXPERIMENT))[:2] == whole[:2], seed
