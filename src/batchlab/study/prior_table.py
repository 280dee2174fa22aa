"""A search that starts from somebody's table of training runs, once an audit finds nothing that contradicts it."""

from __future__ import annotations

from pathlib import Path

from batchlab.analysis.audit.audit import Supported, audit_table
from batchlab.analysis.audit.table import Ending, Entry, Quantity
from batchlab.audit.reading import read_table
from batchlab.audit.sweep import only_sweep
from batchlab.core.errors import InputError, quote
from batchlab.core.experiment import Experiment
from batchlab.core.record import Outcome, TaskInfo
from batchlab.core.spec import MIN_STEPS
from batchlab.storage.decisions import PriorStudy, PriorTrial

SAME_SIZE = 0.05
"""Share by which a stated number of parameters may differ: people round it, or leave out embeddings."""

OUTCOMES = {
    Ending.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
    Ending.DIVERGED: Outcome.DIVERGED,
    Ending.FAILED: Outcome.FAILED,
}


def read_prior_table(path: Path, experiment: Experiment, task_info: TaskInfo) -> PriorStudy:
    """The rows of a table as trials of an earlier study.

    Raises InputError where its numbers contradict each other, where it holds several sweeps or one of another model,
    and where it has no learning rates or no token budget.
    """
    group = only_sweep(audit_table(read_table(path, {}, {})), f"--prior {quote(str(path))}")
    _require_same_model(path, group, experiment, task_info)
    budgets = [tokens for entry in group.entries if (tokens := entry.tokens or _tokens(entry))]
    rates = [entry for entry in group.entries if entry.get(Quantity.LEARNING_RATE)]
    if not rates:
        raise InputError(
            f"--prior {quote(str(path))} has no column with learning rates; add one called learning_rate, or omit "
            "--prior."
        )
    if not budgets:
        raise InputError(
            f"--prior {quote(str(path))} has neither tokens per run nor steps and sequence length; add a column called "
            "tokens, or omit --prior."
        )
    return PriorStudy(study=path.name, token_budget=round(max(budgets)), trials=tuple(_trials(rates)))


def _tokens(entry: Entry) -> float | None:
    steps, per_step = entry.get(Quantity.STEPS), entry.tokens_per_step
    return steps * per_step if steps and per_step else None


def _trials(entries: list[Entry]) -> list[PriorTrial]:
    """Rows without a seed are numbered within their configuration."""
    counted: dict[tuple[float, float], int] = {}
    trials = []
    for entry in entries:
        rate, size = entry.numbers[Quantity.LEARNING_RATE], entry.batch
        if not size or (entry.ending is Ending.COMPLETED and entry.loss is None):
            continue
        place = counted[size, rate] = counted.get((size, rate), -1) + 1
        completed = entry.ending is Ending.COMPLETED
        updates = entry.updates
        trials.append(
            PriorTrial(
                global_batch_size=round(size),
                learning_rate=rate,
                seed=round(entry.numbers.get(Quantity.SEED, place)),
                val_loss=entry.loss if completed else None,
                judged=updates is None or updates >= MIN_STEPS,
                why=OUTCOMES.get(entry.ending),
            )
        )
    return trials


def _require_same_model(path: Path, group: Supported, experiment: Experiment, task_info: TaskInfo) -> None:
    """Compare what the table says of the model; what it does not say is the person's to know."""
    for entry in group.entries:
        count, length = entry.get(Quantity.PARAMETERS), entry.get(Quantity.SEQUENCE_LENGTH)
        if count and task_info.parameter_count and abs(count / task_info.parameter_count - 1) > SAME_SIZE:
            raise InputError(
                f"--prior {quote(str(path))} is of a model with {count:,.0f} parameters, this one has "
                f"{task_info.parameter_count:,}; give a table of this model or a published law, or omit --prior."
            )
        if length and length != experiment.sequence_length:
            raise InputError(
                f"--prior {quote(str(path))} has sequences of {length:,.0f}, this task of "
                f"{experiment.sequence_length:,}; give a table of this task or a published law, or omit --prior."
            )
