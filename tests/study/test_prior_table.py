"""A search that starts from a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import build_experiment
from batchlab.core.record import Outcome, TaskInfo
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.storage.decisions import PriorStudy
from batchlab.storage.store import Store
from batchlab.study.prior import read_prior
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task

ROWS = [(size, rate, 2.0 + 0.1 * abs(size - 16) / 16 + abs(rate - 1)) for size in (8, 16, 32) for rate in (0.5, 1, 2)]
CSV = "batch_size,lr,tokens,val_loss,status\n" + "".join(f"{s},{r},2048,{loss},ok\n" for s, r, loss in ROWS)


def asked(table: Path) -> Any:
    values = {"batch": {"global_batch_sizes": (8, 16, 32)}, "sweep": {"search": "adaptive", "prior": str(table)}}
    return build_experiment(merge(resolve_task("simulated"), merge(values, {"budget": {"max_runs": 2}})))


def prior_of(table: Path, text: str, task_info: TaskInfo) -> PriorStudy:
    table.write_text(text)
    found = read_prior(asked(table), task_info)
    assert isinstance(found, PriorStudy)
    return found


@pytest.fixture
def task_info(tmp_path: Path) -> TaskInfo:
    run_study(
        build_experiment(merge(resolve_task("simulated"), {"budget": {"max_runs": 1}, "sweep": {"seeds": 1}})),
        tmp_path / "study",
        lambda path, workers: InlineEngine(path),
        SilentView(),
    )
    found = Store.open(tmp_path / "study").decisions().task_info
    assert found is not None
    return found


def test_rows_become_trials(tmp_path: Path, task_info: TaskInfo) -> None:
    found = prior_of(tmp_path / "sweep.csv", CSV + "64,1,2048,,oom\n64,2,2048,nan,\n", task_info)

    assert (found.study, found.token_budget, len(found.trials)) == ("sweep.csv", 2048, 11)
    assert [trial.why for trial in found.trials[-2:]] == [Outcome.OUT_OF_MEMORY, Outcome.DIVERGED]
    assert not any(trial.why for trial in found.trials[:9])


def test_a_study_starts_from_it(tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    table.write_text(CSV)

    result = run_study(asked(table), tmp_path / "s", lambda path, workers: InlineEngine(path), SilentView())

    (optimum,) = result.findings.earlier_optima
    assert optimum.token_budget == 2048
    assert isinstance(Store.open(tmp_path / "s").decisions().prior, PriorStudy)


REFUSED = {
    "contradicts itself": CSV.replace("\n8,0.5,2048", "\n8,0.5,9999"),
    "holds 2 sweeps": CSV + CSV.replace("2048", "4096").partition("\n")[2],
    "learning rates": CSV.replace("lr", "x"),
    "tokens per run": CSV.replace("tokens", "x"),
    "parameters": CSV.replace("status", "parameters").replace(",ok", ",7B"),
    "sequences of": CSV.replace("status", "seq_len").replace(",ok", ",7"),
}


@pytest.mark.parametrize("said", REFUSED)
def test_other_tables_are_refused(tmp_path: Path, task_info: TaskInfo, said: str) -> None:
    with pytest.raises(InputError, match=said):
        prior_of(tmp_path / "sweep.csv", REFUSED[said], task_info)
