"""A search that starts from an earlier study or a published law, through whole simulated studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.experiment import build_experiment
from batchlab.core.record import TaskInfo
from batchlab.core.settings import merge
from batchlab.core.spec import TrainSpec
from batchlab.engines.inline import InlineEngine
from batchlab.storage.decisions import Decisions, PriorStudy, StopReason
from batchlab.storage.store import Store
from batchlab.study.prior import read_prior, start_of
from batchlab.study.progress import SilentView
from batchlab.study.study import StudyResult, run_study
from batchlab.study.task_source import resolve_task


def study(folder: Path, **sections: Any) -> StudyResult:
    small = {"batch": {"global_batch_sizes": (8, 16, 32)}, "sweep": {"search": "adaptive", "seeds": 1}}
    values = merge(merge(resolve_task("simulated"), small), sections)
    return run_study(build_experiment(values), folder, lambda path, workers: InlineEngine(path), SilentView())


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / "study"
    study(folder, budget={"token_budget": 2048, "max_runs": 5})
    return folder


def cells(folder: Path) -> list[tuple[int, float]]:
    specs = [spec for spec, _ in Store.open(folder).records() if isinstance(spec, TrainSpec)]
    return [(spec.layout.global_batch_size, spec.learning_rate) for spec in specs]


def test_a_study_starts_from_an_earlier_one_and_keeps_what_it_started_from(earlier: Path, tmp_path: Path) -> None:
    result = study(tmp_path / "s", sweep={"prior": str(earlier)}, budget={"max_runs": 2})
    (optimum,) = result.findings.earlier_optima
    assert optimum.token_budget == 2048
    assert result.findings.token_budget == 4096
    assert len(result.findings.runs) == 2
    report = (tmp_path / "s" / "report.md").read_text()
    assert all(number in report for number in ("2,048", "4,096", "0.53 ± 0.15", "n = 2"))
    kept = Store.open(tmp_path / "s").decisions().prior
    assert isinstance(kept, PriorStudy)
    assert kept.token_budget == 2048
    assert len(kept.trials) == 5
    hint, start = start_of(kept, 4096)
    assert hint is None
    assert start is not None
    assert start.tokens_ratio == 2.0
    assert {(trial.global_batch_size, trial.learning_rate) for trial in start.outcomes} == set(cells(earlier))


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"model": {"dimensions": 32}}, "another model.*parameters"),
        ({"optimizer": {"name": "adamw"}}, "another model.*optimizer: sgd"),
        ({"sweep": {"search": "grid"}}, "grid trains every cell"),
        ({"sweep": {"prior": "deepsek"}}, "Did you mean 'deepseek'"),
        ({"sweep": {"prior": "deepseek"}}, "count tokens"),
        ({"budget": {"max_tokens": 4000}}, "less than one run of 4,096"),
    ],
)
def test_what_cannot_be_started_from_is_refused_before_anything_is_written(
    earlier: Path, tmp_path: Path, sections: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        study(tmp_path / "s", **merge({"sweep": {"prior": str(earlier)}}, sections))
    assert not (tmp_path / "s").exists()


def test_a_study_without_a_finished_run_is_no_prior(earlier: Path, tmp_path: Path) -> None:
    experiment = Store.open(earlier).experiment
    store = Store.create(tmp_path / "empty", experiment)
    task_info = Store.open(earlier).decisions().task_info
    assert task_info is not None
    store.decide(Decisions(task_info=task_info))
    asked = experiment.model_copy(
        update={"sweep": experiment.sweep.model_copy(update={"prior": str(tmp_path / "empty")})}
    )
    with pytest.raises(InputError, match="no finished training run"):
        read_prior(asked, task_info)


def test_a_law_is_a_hint_in_samples_at_this_budget() -> None:
    asked = build_experiment(
        {
            "name": "x",
            "task": {"kind": "recipe", "target": "quickstart"},
            "sequence_length": 64,
            "sweep": {"prior": "deepseek"},
        }
    )
    task_info = TaskInfo(
        unit=Unit.TOKENS,
        sequence_length=64,
        train_samples=1,
        valid_samples=1,
        parameter_count=140_000,
        optimizer_family="adam",
        data_source="",
        data_digest="",
        device="cpu",
    )
    prior = read_prior(asked, task_info)
    hint, start = start_of(prior, 524_288)
    assert start is None
    assert hint is not None
    compute = 6 * 140_000 * 524_288
    assert hint.global_batch_size == pytest.approx(0.2920 * compute**0.3271 / 64)
    assert hint.learning_rate == pytest.approx(0.3118 * compute**-0.125)


def test_all_runs_together_keep_to_max_tokens_and_the_study_keeps_why_it_ended(tmp_path: Path) -> None:
    result = study(tmp_path / "s", budget={"token_budget": 2048, "max_tokens": 3 * 2048 + 5})
    assert len(result.findings.runs) == 3
    stopped = Store.open(tmp_path / "s").decisions().search_stopped
    assert stopped is not None
    assert stopped.reason is StopReason.RUNS_SPENT


def test_max_tokens_alone_are_shared_among_the_planned_runs(tmp_path: Path) -> None:
    budget = {"token_budget": None, "max_tokens": 40_000}
    result = study(tmp_path / "s", budget=budget, sweep={"search": "grid"})
    assert sum(run.tokens for run in result.findings.runs) <= 40_000
    assert len(result.findings.runs) >= 12


def test_one_batch_size_is_a_search_over_learning_rates(tmp_path: Path) -> None:
    result = study(tmp_path / "s", batch={"global_batch_sizes": (16,)}, budget={"token_budget": 2048, "max_runs": 7})
    assert result.answered
    assert {run.global_batch_size for run in result.findings.runs} == {16}
