"""From a request to an open study: inspect the task, settle the experiment, create the folder or continue in it.

Everything that can be wrong with the request is found before anything is written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchlab.core.errors import InputError, StudyChanged
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.protocols import Engine, Finished
from batchlab.core.record import InspectResult, Outcome
from batchlab.core.spec import DeviceSettings, InspectSpec, OptimizerSettings, Workload
from batchlab.engines.inline import InlineEngine
from batchlab.engines.local import LocalEngine
from batchlab.runs.workload import digest_of, file_states, hash_files
from batchlab.search.budget import quantum, runs_within, token_budget_of
from batchlab.storage.store import Store
from batchlab.study.prior import read_prior

EngineFactory = Callable[[Path, int], Engine]
"""(study folder, concurrent workers) → Engine."""


def engine_factory(asked: Experiment) -> EngineFactory:
    """The simulated device needs no process of its own; everything else runs in worker processes."""
    if asked.device.name == "simulated":
        return lambda folder, workers: InlineEngine(folder)
    return lambda folder, workers: LocalEngine(folder, workers, silence_seconds=asked.device.silence_seconds)


@dataclass(frozen=True, slots=True)
class Opened:
    """A study ready to go on."""

    store: Store
    experiment: Experiment
    subject: InspectResult

    @property
    def workload(self) -> Workload:
        return workload_of(self.experiment, self.subject)


def workload_of(experiment: Experiment, subject: InspectResult | None = None) -> Workload:
    """What the study's specs train, with the digests that make their run ids; without them before it is inspected."""
    workload = Workload(
        task=experiment.task,
        unit=experiment.unit,
        sequence_length=experiment.sequence_length,
        model=experiment.model,
        data=experiment.data,
    )
    if subject is None:
        return workload
    return workload.model_copy(update={"data_digest": subject.data_digest, "code_digest": digest_of(subject.code)})


def open_study(values: dict[str, Any], folder: Path, make_engine: EngineFactory, *, accept_edits: bool) -> Opened:
    """Create the study in `folder`, or continue the one that is there if it asks the same question.

    Raises InputError for anything wrong with the request, StudyChanged when the folder answers another question or the
    person's code or data changed since.
    """
    asked = build_experiment(values)
    if Store.exists(folder):
        store = Store.open(folder)
        subject = InspectResult.model_validate(store.decisions()["subject"])
        store.require_same(complete(asked, subject))
        _require_same_data(subject)
        _require_same_code(store, subject, accept_edits)
        return Opened(store, store.experiment, subject)
    Store.require_usable(folder)
    subject = inspect(asked, make_engine)
    experiment = complete(asked, subject)
    require_sound(experiment, subject)
    prior = read_prior(experiment, subject)
    store = Store.create(folder, experiment)
    if prior is not None:
        store.decide("prior", prior)
    store.decide("subject", subject.model_dump(mode="json"))
    return Opened(store, experiment, subject)


def reopen_study(folder: Path) -> Opened:
    """The study that is in `folder`; StudyChanged where the person's code or data changed since."""
    store = Store.open(folder)
    subject = store.decisions().get("subject")
    if subject is None:
        raise InputError(f"The study in {folder} has measured nothing yet; run it first.")
    opened = Opened(store, store.experiment, InspectResult.model_validate(subject))
    _require_same_data(opened.subject)
    _require_same_code(store, opened.subject, accept_edits=False)
    return opened


def inspect(experiment: Experiment, make_engine: EngineFactory) -> InspectResult:
    """Load the task in a worker process and describe it. Writes nothing that stays."""
    spec = InspectSpec(
        workload=workload_of(experiment),
        optimizer=OptimizerSettings(config=experiment.optimizer),
        device=DeviceSettings(name=experiment.device.name),
    )
    with tempfile.TemporaryDirectory(prefix="batchlab-") as scratch:
        engine = make_engine(Path(scratch), 1)
        try:
            engine.submit(spec, exclusive=True)
            while True:
                for event in engine.wait(1.0):
                    if isinstance(event, Finished):
                        record = event.record
                        if record.outcome is Outcome.COMPLETED and isinstance(record.result, InspectResult):
                            return record.result
                        raise InputError(record.reason)
        finally:
            engine.close()


def complete(asked: Experiment, subject: InspectResult) -> Experiment:
    """The experiment with what only the task itself can say: unit, lengths, its own optimizer, tokens of its epochs."""
    changes: dict[str, Any] = {"unit": subject.unit, "sequence_length": subject.sequence_length}
    if (epochs := asked.budget.epochs) is not None and asked.budget.token_budget is None:
        tokens = round(epochs * subject.train_samples * subject.sequence_length)
        changes["budget"] = asked.budget.model_copy(update={"token_budget": tokens})
    if subject.own_optimizer:
        changes["optimizer"] = asked.optimizer.model_copy(update={"name": "task"})
    return asked.model_copy(update=changes)


def require_sound(experiment: Experiment, subject: InspectResult) -> None:
    """InputError where the question cannot be answered whatever is measured."""
    sizes, unit = experiment.batch.global_batch_sizes, experiment.unit
    budget = experiment.budget
    if budget.token_budget is not None:
        tokens, _ = token_budget_of(
            budget.token_budget, sizes, experiment.sequence_length, experiment.evaluation.points
        )
        runs_within(tokens, budget.max_runs, budget.max_tokens)
    elif budget.max_tokens is not None:
        runs_within(quantum(sizes, experiment.sequence_length), budget.max_runs, budget.max_tokens)
    if sizes[-1] > subject.train_samples:
        raise InputError(
            f"The largest batch size is {sizes[-1]}, but the training data holds {subject.train_samples} samples"
            + (f" of {experiment.sequence_length} {unit}" if experiment.sequence_length > 1 else "")
            + "; use smaller --batch-sizes or more data."
        )


def _require_same_data(subject: InspectResult) -> None:
    now = file_states(subject.data_files)
    changed = [path for path, state in subject.data_files.items() if now[path] != state]
    if changed:
        raise StudyChanged(
            f"The data changed since this study began: {', '.join(changed)}. Old and new runs cannot be "
            "compared; put the file back, or start a new study with --out."
        )


def changed_code(store: Store, subject: InspectResult) -> dict[str, str]:
    """Path → present hash of the person's files that are neither as at the beginning nor accepted since."""
    accepted = store.decisions()
    now = hash_files([Path(path) for path in subject.code])
    return {
        path: digest
        for path, digest in now.items()
        if digest != subject.code[path] and _acceptance(path, digest) not in accepted
    }


def accepted_edits(decisions: dict[str, Any]) -> list[str]:
    """Files whose edits the person declared harmless, for the report."""
    return sorted({name.split(":", 2)[2] for name in decisions if name.startswith("accepted_edit:")})


def _require_same_code(store: Store, subject: InspectResult, accept_edits: bool) -> None:
    changed = changed_code(store, subject)
    if not changed:
        return
    if not accept_edits:
        raise StudyChanged(
            f"Edited since this study began: {', '.join(sorted(changed))}. Start a new study with --out, or, if the "
            "edit cannot change any result, go on with --accept-edits (the report will say so)."
        )
    for path, digest in changed.items():
        store.decide(_acceptance(path, digest), True)


def _acceptance(path: str, digest: str) -> str:
    return f"accepted_edit:{digest[:12] or 'deleted'}:{path}"
