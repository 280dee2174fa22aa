"""From an experiment to an open study: inspect the task, complete the experiment, create or continue its folder.

Everything that can be wrong with the request is found before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchlab.core.clock import SYSTEM_CLOCK, Clock
from batchlab.core.errors import InputError, StudyChanged, quote
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.files import Files
from batchlab.core.protocols import Finished
from batchlab.core.record import FileDigest, Outcome, TaskInfo
from batchlab.core.spec import InspectSpec, OptimizerSettings, Workload
from batchlab.data.digests import file_digest, read_digest, remember
from batchlab.data.verify import damaged_made
from batchlab.engines.hosts import Host, measuring_cores
from batchlab.engines.resources import usable_cores
from batchlab.integrations.script.fit import fitted
from batchlab.runs.workload import hash_files, workload_of
from batchlab.search.budget import quantum, runs_within, token_budget_of
from batchlab.storage.atomic import scratch_folder, shared_scratch, storage_errors
from batchlab.storage.decisions import AcceptedEdit, Decisions
from batchlab.storage.files import DISK
from batchlab.storage.sealed import DamagedFile
from batchlab.storage.store import Store
from batchlab.study.batch_axis import to_its_end
from batchlab.study.engines import EngineFactory, engine_factory, inspecting_device
from batchlab.study.placement import require_devices, require_same_task
from batchlab.study.prior import read_prior


@dataclass(frozen=True, slots=True)
class OpenStudy:
    """A study whose task was inspected and whose folder exists."""

    store: Store
    experiment: Experiment
    task_info: TaskInfo
    repaired: tuple[DamagedFile, ...] = ()
    edited: tuple[str, ...] = ()  # files, since a check after which nothing was measured

    @property
    def workload(self) -> Workload:
        """What the study's specs train."""
        return workload_of(self.experiment, self.task_info)


def open_study(
    asked: Experiment,
    folder: Path,
    make_engine: EngineFactory,
    *,
    accept_edits: bool,
    hosts: Sequence[Host] = (),
    files: Files = DISK,
    clock: Clock = SYSTEM_CLOCK,
) -> OpenStudy:
    """Create the study in `folder`, or continue the one that is there if it asks the same question.

    One that has only checked its task begins again where the person's code or data was edited, because nothing was
    measured with the old ones.

    Raises InputError for anything wrong with the request, StudyChanged where the folder answers another question or the
    person's code or data has changed since.
    """
    with storage_errors(folder):
        return _open(asked, folder, make_engine, accept_edits, hosts, files, clock)


def _open(
    asked: Experiment,
    folder: Path,
    make_engine: EngineFactory,
    accept_edits: bool,
    hosts: Sequence[Host],
    files: Files,
    clock: Clock,
) -> OpenStudy:
    if Store.exists(folder, files):
        store = Store.open(folder, files, clock)
        repaired = tuple(store.repair())
        begun = store.decisions().task_info  # None where a process was killed while it created the study
        edited = _edited_since_check(store, begun) if begun is not None else ()
        if begun is not None and not edited:
            store.require_same(complete(asked, begun))
            _require_same_data(store, begun)
            _require_same_code(store, begun, accept_edits)
            require_devices(asked, begun, hosts)
            _require_same_elsewhere(asked, folder, begun, hosts)
            return OpenStudy(store, store.experiment, begun, repaired)
    else:
        edited = ()
    Store.require_usable(folder, files)
    elsewhere = any(host.command.launched for host in hosts[:1])
    with shared_scratch(folder) if elsewhere else scratch_folder(files) as scratch:
        task_info = inspect(asked, make_engine, scratch, measuring_cores(hosts))
    experiment = complete(asked, task_info)
    require_sound(experiment, task_info)
    require_devices(experiment, task_info, hosts)
    _require_same_elsewhere(asked, folder, task_info, hosts)
    prior = read_prior(experiment, task_info)
    store = Store.create(folder, experiment, files, clock)
    if edited and not store.begin_again():
        raise StudyChanged(f"Edited while another process checks this study: {', '.join(edited)}. Stop it first.")
    for path, known in task_info.data_files.items():
        remember(Path(path), known, store.path / "cache")
    store.decide(Decisions(task_info=task_info) if prior is None else Decisions(prior=prior, task_info=task_info))
    return OpenStudy(store, experiment, task_info, edited=edited)


def reopen_study(folder: Path) -> OpenStudy:
    """The study in `folder`.

    Raises InputError where there is none, StudyChanged where the person's code or data has changed since it began.
    """
    store = Store.open(folder)
    task_info = store.decisions().task_info
    if task_info is None:
        raise InputError(f"The study in {folder} has measured nothing yet; run it first.")
    _require_same_data(store, task_info)
    _require_same_code(store, task_info, accept_edits=False)
    return OpenStudy(store, store.experiment, task_info)


def prepare(
    asked: Experiment, make_engine: EngineFactory, *, sweep: bool = True, files: Files = DISK
) -> tuple[Experiment, TaskInfo]:
    """The experiment completed by what the task itself says, and the task as a worker process found it.

    `sweep` False: batch sizes and budget are not checked, because no sweep is wanted. Writes nothing that stays. Raises
    InputError where the task cannot be loaded, and where the sweep could not be answered whatever is measured.
    """
    with scratch_folder(files) as scratch:
        task_info = inspect(asked, make_engine, scratch, usable_cores())
    experiment = complete(asked, task_info)
    require_devices(experiment, task_info)
    if sweep:
        require_sound(experiment, task_info)
    return experiment, task_info


def inspect(experiment: Experiment, make_engine: EngineFactory, scratch: Path, cores: int) -> TaskInfo:
    """Load the task in a worker process and describe it. Raises InputError where it cannot be loaded.

    scratch: an empty folder that the worker sees too. cores: those of later measurements.
    """
    spec = InspectSpec(
        workload=workload_of(experiment),
        optimizer=OptimizerSettings(config=experiment.optimizer),
        device=inspecting_device(experiment, cores),
    )
    engine = make_engine(scratch, 1)
    try:
        engine.submit(spec, exclusive=True)
        while True:
            for event in engine.wait(1.0):
                if isinstance(event, Finished):
                    record = event.record
                    if record.outcome is Outcome.COMPLETED and isinstance(record.result, TaskInfo):
                        return record.result
                    raise InputError(record.reason)
    finally:
        engine.close()


def _require_same_elsewhere(asked: Experiment, folder: Path, begun: TaskInfo, hosts: Sequence[Host]) -> None:
    """Raise InputError where a host after the first, which inspected the task, finds another one."""

    def inspect_on(host: Host) -> TaskInfo:
        own = scratch / str(hosts.index(host))
        own.mkdir()
        for path, known in begun.data_files.items():  # where it is the same file, it need not be read again
            remember(Path(path), known, own / "cache")
        return inspect(asked, engine_factory(asked, [host]), own, host.worker_cores)

    if len(hosts) > 1:
        with shared_scratch(folder) as scratch:
            require_same_task(hosts[1:], begun, inspect_on)


def complete(asked: Experiment, task_info: TaskInfo) -> Experiment:
    """The experiment with what only the task knows: unit, sequence length, its own optimizer, tokens of its epochs."""
    changes: dict[str, Any] = {
        "unit": task_info.unit,
        "sequence_length": task_info.sequence_length,
        "framework": task_info.framework,
    }
    if asked.command is not None:
        asked = fitted(asked, asked.command)
    elif asked.schedule.kind == "task":
        raise InputError(
            'schedule.kind = "task" is for a script with a schedule of its own, and batchlab sets the learning rate of '
            "this task: use cosine, constant or wsd."
        )
    own_metric = task_info.settings.get("evaluation", {}).get("metric")
    if asked.evaluation.metric not in (None, own_metric):
        raise InputError(
            f"evaluation.metric is {quote(asked.evaluation.metric)}, and this task has "
            f"{'no metric' if own_metric is None else f'the metric {own_metric}'}: a metric comes with the task, as "
            "batchlab.task(metric=…), metric_for_best_model, or command.metrics.metric."
        )
    if (epochs := asked.budget.epochs) is not None and asked.budget.token_budget is None:
        if task_info.train_samples is None:
            raise InputError(
                "budget.epochs: how many samples an epoch has is not known; set command.train_samples, or give "
                "--token-budget."
            )
        tokens = round(epochs * task_info.train_samples * task_info.sequence_length)
        changes["budget"] = asked.budget.model_copy(update={"token_budget": tokens})
    if task_info.own_optimizer:
        changes["optimizer"] = asked.optimizer.model_copy(update={"name": "task"})
    return to_its_end(_with_own_settings(asked.model_copy(update=changes), task_info), task_info)


def _with_own_settings(asked: Experiment, task_info: TaskInfo) -> Experiment:
    """The settings of the person's own trainer, except where the request has another value than the default."""
    if not task_info.settings:
        return asked
    values = asked.model_dump(mode="json")
    for section, settings in task_info.settings.items():
        default = type(getattr(asked, section))().model_dump(mode="json")
        mine = {name: value for name, value in settings.items() if values[section][name] == default[name]}
        values[section] = {**values[section], **mine}
    return build_experiment(values)


def require_sound(experiment: Experiment, task_info: TaskInfo) -> None:
    """Raise InputError where the sweep cannot be answered whatever is measured."""
    sizes, unit = experiment.batch.global_batch_sizes, experiment.unit
    budget = experiment.budget
    if budget.token_budget is not None:
        tokens, _ = token_budget_of(
            budget.token_budget, sizes, experiment.sequence_length, experiment.evaluation.points
        )
        runs_within(tokens, budget.max_tokens)
    elif budget.max_tokens is not None:
        runs_within(quantum(sizes, experiment.sequence_length), budget.max_tokens)
    if task_info.train_samples is not None and sizes[-1] > task_info.train_samples:
        raise InputError(
            f"The largest batch size is {sizes[-1]}, but the training data has {task_info.train_samples} samples"
            + (f" of {experiment.sequence_length} {unit}" if experiment.sequence_length > 1 else "")
            + "; use smaller --batch-sizes or more data."
        )


def _edited_since_check(store: Store, task_info: TaskInfo) -> tuple[str, ...]:
    """Files of code and data that were edited since the task was checked; empty once anything was measured."""
    kinds = {run_id.partition("-")[0] for run_id in store.run_ids()}
    if not kinds <= {"check", "trace"}:
        return ()
    return tuple(sorted({*_changed_data(store, task_info), *changed_code(store, task_info)}))


def _changed_data(store: Store, task_info: TaskInfo) -> list[str]:
    cache = store.path / "cache"
    return [
        path
        for path, known in task_info.data_files.items()
        if not Path(path).is_file() or file_digest(Path(path), cache).sha256 != known.sha256
    ]


def _require_same_data(store: Store, task_info: TaskInfo) -> None:
    changed = _changed_data(store, task_info)
    if changed:
        raise StudyChanged(
            f"The data has changed since this study began: {', '.join(changed)}. Old and new runs cannot be compared; "
            "restore the file, or start a new study with --out."
        )


def damaged_data(store: Store) -> tuple[int, list[Path]]:
    """How many data files the study has read or made, and which of them are not what they were; reads all of them."""
    task_info, cache = store.decisions().task_info, store.path / "cache"
    known = {} if task_info is None else {Path(path): found for path, found in task_info.data_files.items()}
    changed = [path for path, found in known.items() if not _is_still(path, found)]
    made, damaged = damaged_made(cache, {path: found.sha256 for path, found in known.items()})
    return len(known) + made, changed + damaged


def _is_still(path: Path, known: FileDigest) -> bool:
    return path.is_file() and read_digest(path).sha256 == known.sha256


def changed_code(store: Store, task_info: TaskInfo) -> dict[str, str]:
    """Path → current hash of the person's files that were edited since the study began and not accepted since."""
    accepted = store.decisions().accepted_edits
    now = hash_files([Path(path) for path in task_info.code])
    return {
        path: digest
        for path, digest in now.items()
        if digest != task_info.code[path] and AcceptedEdit(path=path, digest=digest) not in accepted
    }


def _require_same_code(store: Store, task_info: TaskInfo, accept_edits: bool) -> None:
    changed = changed_code(store, task_info)
    if not changed:
        return
    if not accept_edits:
        raise StudyChanged(
            f"Edited since this study began: {', '.join(sorted(changed))}. Start a new study with --out, or, if the "
            "edit cannot change any result, continue with --accept-edits (the report will say so)."
        )
    edits = tuple(AcceptedEdit(path=path, digest=digest) for path, digest in changed.items())
    store.decide(Decisions(accepted_edits=edits))
