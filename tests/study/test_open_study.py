"""From an experiment to an open study: completed by the task, refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError, StudyChanged
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.protocols import Finished
from batchlab.core.record import TaskInfo
from batchlab.core.settings import merge
from batchlab.core.spec import CapacitySpec, CheckSpec, Spec
from batchlab.engines.inline import InlineEngine
from batchlab.runs.workload import workload_of
from batchlab.storage.decisions import AcceptedEdit, Decisions
from batchlab.storage.store import Store
from batchlab.study.open_study import complete, open_study, prepare, reopen_study
from batchlab.study.task_source import resolve_task


def make_engine(path: Path, workers: int) -> InlineEngine:
    return InlineEngine(path)


def asked(**sections: Any) -> Experiment:
    return build_experiment(merge(resolve_task("simulated"), sections))


def test_the_task_completes_the_experiment() -> None:
    experiment, task_info = prepare(asked(budget={"token_budget": None, "epochs": 2}), make_engine)
    assert experiment.unit is task_info.unit is Unit.SAMPLES
    assert experiment.budget.token_budget == 2 * (task_info.train_samples or 0)
    assert complete(experiment, task_info) == experiment


def test_a_tasks_own_optimizer_is_named() -> None:
    _, task_info = prepare(asked(), make_engine)
    own = task_info.model_copy(update={"own_optimizer": True})
    assert complete(asked(), own).optimizer.name == "task"


def test_a_schedule_of_its_own_has_a_script_alone() -> None:
    _, task_info = prepare(asked(), make_engine)
    with pytest.raises(InputError, match="use cosine, constant or wsd"):
        complete(asked(schedule={"kind": "task"}), task_info)


def test_a_metric_comes_with_the_task() -> None:
    _, task_info = prepare(asked(), make_engine)
    with pytest.raises(InputError, match="this task has no metric"):
        complete(asked(evaluation={"metric": "accuracy"}), task_info)
    scored = task_info.model_copy(
        update={"settings": {"evaluation": {"metric": "accuracy", "metric_better": "higher"}}}
    )
    judged_by = complete(asked(evaluation={"metric_best": 100.0}), scored).evaluation.judged_by
    assert judged_by is not None
    assert judged_by.title == "100 − accuracy"


def test_sizes_beyond_the_data_are_refused_only_where_a_sweep_is_wanted() -> None:
    large = asked(batch={"global_batch_sizes": (8, 10**9)}, budget={"token_budget": None})
    with pytest.raises(InputError, match="largest batch size is 1000000000"):
        prepare(large, make_engine)
    experiment, _ = prepare(large, make_engine, sweep=False)
    assert experiment.batch.global_batch_sizes[-1] == 10**9


def test_a_study_is_created_once_and_reopened(tmp_path: Path) -> None:
    first = open_study(asked(), tmp_path / "s", make_engine, accept_edits=False)
    again = open_study(asked(), tmp_path / "s", make_engine, accept_edits=False)
    reopened = reopen_study(tmp_path / "s")
    assert first.experiment == again.experiment == reopened.experiment
    assert first.task_info == again.task_info == reopened.task_info
    with pytest.raises(StudyChanged, match=r"sweep\.seeds"):
        open_study(asked(sweep={"seeds": 9}), tmp_path / "s", make_engine, accept_edits=False)


def test_a_study_killed_while_it_was_created_is_continued(tmp_path: Path) -> None:
    experiment, task_info = prepare(asked(), make_engine)
    Store.create(tmp_path / "s", experiment)
    with pytest.raises(InputError, match="measured nothing yet"):
        reopen_study(tmp_path / "s")
    with pytest.raises(StudyChanged, match=r"sweep\.seeds"):
        open_study(asked(sweep={"seeds": 9}), tmp_path / "s", make_engine, accept_edits=False)
    assert open_study(asked(), tmp_path / "s", make_engine, accept_edits=False).task_info == task_info
    assert reopen_study(tmp_path / "s").task_info == task_info


def edited(folder: Path, code: Path) -> Store:
    """A study whose task came from `code`, which was edited since."""
    experiment, task_info = prepare(asked(), make_engine)
    store = Store.create(folder, experiment)
    code.write_text("x = 1\n")
    stale: TaskInfo = task_info.model_copy(update={"code": {str(code): "0" * 64}})
    store.decide(Decisions(task_info=stale))
    return store


def run(store: Store, spec: Spec) -> None:
    engine = InlineEngine(store.path)
    engine.submit(spec)
    while not any(isinstance(event, Finished) for event in engine.wait(1.0)):
        pass


def test_a_study_that_only_checked_its_task_begins_again_after_an_edit(tmp_path: Path) -> None:
    store = edited(tmp_path / "s", tmp_path / "mine.py")
    run(store, CheckSpec(workload=workload_of(store.experiment, store.decisions().task_info)))
    assert store.records()
    study = open_study(asked(), store.path, make_engine, accept_edits=False)
    assert study.edited == (str(tmp_path / "mine.py"),)
    assert store.records() == []
    assert store.decisions() == Decisions(task_info=study.task_info)
    assert reopen_study(store.path).task_info == study.task_info


def test_a_study_does_not_begin_again_while_a_process_has_one_of_its_runs(tmp_path: Path) -> None:
    store = edited(tmp_path / "s", tmp_path / "mine.py")
    spec = CheckSpec(workload=workload_of(store.experiment, store.decisions().task_info))
    run(store, spec)
    kept = store.decisions()
    held = store.run(spec)
    assert held.try_lock()
    with pytest.raises(StudyChanged, match="another process"):
        open_study(asked(), store.path, make_engine, accept_edits=False)
    held.unlock()
    assert store.decisions() == kept
    assert store.records()


def test_an_edit_stops_the_study_until_that_very_edit_is_accepted(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    store = edited(tmp_path / "s", code)
    run(store, CapacitySpec(workload=workload_of(store.experiment, store.decisions().task_info), micro_batch_size=1))
    with pytest.raises(StudyChanged, match=r"mine\.py"):
        open_study(asked(), store.path, make_engine, accept_edits=False)
    assert store.decisions().accepted_edits == ()
    open_study(asked(), store.path, make_engine, accept_edits=True)
    (accepted,) = store.decisions().accepted_edits
    assert isinstance(accepted, AcceptedEdit)
    assert accepted.path == str(code)
    open_study(asked(), store.path, make_engine, accept_edits=False)
    code.write_text("x = 2\n")
    with pytest.raises(StudyChanged, match=r"mine\.py"):
        reopen_study(store.path)
