"""The quickstart study again, over recorded losses: the real search and the real analysis, without training.

The search asks for its runs and gets the recorded losses, so a change of the losses may change which runs it asks for.
Where it asks for one that was not recorded, the answer counts as another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.verdict import Unresolved
from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import Experiment
from batchlab.core.record import Outcome, Record, TaskInfo, ThroughputResult, TrainResult
from batchlab.core.spec import Spec, ThroughputSpec, TrainSpec, Workload, run_id
from batchlab.search.budget import token_budget_of
from batchlab.search.grid import GridSearch
from batchlab.search.trial import Trial, TrialOutcome

LOSSES = Path(__file__).parent / "losses.json"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a recorded run ended."""

    outcome: Outcome
    val_loss: float | None
    val_error: float | None
    clipped: float | None


Run = tuple[int, float, int, int]
"""Batch size, learning rate, seed and tokens of a run."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one instruction set gave: settings and machine as they were written, speeds by batch size, and all runs."""

    name: str
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    cpu_seconds: float
    tokens_per_second: Mapping[int, float]
    runs: Mapping[Run, Ended]

    def with_losses(self, change: Callable[[Run, float], float]) -> Recorded:
        """With another loss for every run that has one."""
        return replace(
            self,
            runs={
                run: ended if ended.val_loss is None else replace(ended, val_loss=change(run, ended.val_loss))
                for run, ended in self.runs.items()
            },
        )

    def with_speeds(self, change: Callable[[int, float], float]) -> Recorded:
        """With another speed for every batch size."""
        return replace(
            self, tokens_per_second={size: change(size, speed) for size, speed in self.tokens_per_second.items()}
        )


def parse(text: str) -> dict[str, Recorded]:
    """The recorded studies by instruction set, from the text of losses.json."""
    return {
        name: Recorded(
            name,
            values["settings"],
            values["environment"],
            values["cpu_seconds"],
            {int(size): speed for size, speed in values["tokens_per_second"].items()},
            {
                (size, rate, seed, tokens): Ended(Outcome(outcome), *measured)
                for size, rate, seed, tokens, outcome, *measured in values["runs"]
            },
        )
        for name, values in json.loads(text).items()
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person takes home: what to train with, and which cells are statistically tied with it."""

    train_with: tuple[int, float]
    tied: tuple[tuple[int, float], ...]

    def __str__(self) -> str:
        size, rate = self.train_with
        others = [f"{one} at {other:g}" for one, other in self.tied if (one, other) != self.train_with]
        return f"batch {size} at {rate:g}, tied with {', '.join(others) if others else 'no other cell'}"


def answer_of(found: Findings) -> Answer | None:
    """None where nothing is recommended."""
    if found.recommended is None or found.surface is None:
        return None
    return Answer(
        (found.recommended.layout.global_batch_size, found.recommended.learning_rate),
        tuple((cell.global_batch_size, cell.learning_rate) for cell in found.surface.tied_cells),
    )


def replay(recorded: Recorded, experiment: Experiment, without: Collection[int] = ()) -> Findings | None:
    """What the study makes of these losses; None where it would make a run that was not recorded.

    `without`: seeds whose runs the analysis does not get, though the search did.
    """
    budget, _ = token_budget_of(
        experiment.budget.token_budget or 0,
        experiment.batch.global_batch_sizes,
        experiment.sequence_length,
        experiment.evaluation.points,
    )
    asked = _search(recorded, experiment, budget)
    if asked is None:
        return None
    smaller = [run for run in recorded.runs if run[3] < budget]
    kept = [run for run in [*asked, *smaller] if run[2] not in without]
    found = _findings(recorded, kept, experiment)
    return None if _more_runs(found, {run[:3] for run in kept}, smaller) else found


def _search(recorded: Recorded, experiment: Experiment, budget: int) -> list[Run] | None:
    """The runs that the search asks for."""
    sweep = experiment.sweep
    assert sweep.learning_rates is not None
    search = GridSearch(
        experiment.batch.global_batch_sizes,
        sweep.learning_rates,
        max_extensions=sweep.max_extensions,
        seeds=sweep.seeds,
        confirm=len(sweep.confirmation_seeds),
        first_seed=sweep.first_seed,
    )
    while trials := search.ask():
        runs = [_run(trial, budget) for trial in trials]
        if any(run not in recorded.runs for run in runs):
            return None
        search.tell(trials, [_outcome(recorded.runs[run]) for run in runs])
    return [_run(trial, budget) for trial in search.outcomes]


def _run(trial: Trial, budget: int) -> Run:
    return trial.global_batch_size, trial.learning_rate, trial.seed, budget


def _outcome(ended: Ended) -> TrialOutcome:
    if ended.outcome is Outcome.COMPLETED:
        return TrialOutcome(ended.val_loss)
    return TrialOutcome(None, why=ended.outcome)


def _more_runs(found: Findings, runs: Collection[tuple[int, float, int]], smaller: Collection[Run]) -> bool:
    """Whether the study would go on: with seeds of the best cell, its half budget, or seeds for what is open."""
    surface = found.surface
    best = surface.best.best if surface and surface.best else None
    if surface is None or best is None or found.recommended is None:
        return False
    cell = best.global_batch_size, best.learning_rate
    repeated = {seed for size, rate, seed in runs if (size, rate) == cell}
    reason = found.recommended.reason
    unresolved = isinstance(reason, Unresolved) and reason.other.more_seeds is not None
    return len(repeated) == 1 or cell not in {run[:2] for run in smaller} or unresolved


def _findings(recorded: Recorded, runs: Collection[Run], experiment: Experiment) -> Findings:
    workload = Workload(task=experiment.task, sequence_length=experiment.sequence_length)

    def layout(size: int) -> BatchLayout:
        return BatchLayout(global_batch_size=size, micro_batch_size=size, sequence_length=experiment.sequence_length)

    records: list[tuple[Spec, Record]] = []
    for size, speed in recorded.tokens_per_second.items():
        measured = ThroughputSpec(workload=workload, layout=layout(size))
        speeds = ThroughputResult(
            tokens_per_second=speed,
            tokens_per_second_blocks=(speed,) * 5,
            step_seconds=measured.layout.tokens_per_step / speed,
            warmup_seconds=0.0,
        )
        records.append((measured, Record(run_id=run_id(measured), outcome=Outcome.COMPLETED, result=speeds)))
    for run in runs:
        size, rate, seed, tokens = run
        spec = TrainSpec(
            workload=workload,
            layout=layout(size),
            learning_rate=rate,
            seed=seed,
            token_budget=tokens,
            schedule=experiment.schedule,
            evaluation_interval=tokens,
        )
        ended = recorded.runs[run]
        trained = TrainResult(
            steps=spec.steps,
            tokens=tokens,
            val_loss=ended.val_loss,
            val_error=ended.val_error,
            clipped_fraction=ended.clipped,
        )
        record = Record(run_id=run_id(spec), outcome=ended.outcome, result=trained, pairing="verified")
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
