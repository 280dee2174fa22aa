"""Batch sizes that go on until memory ends: --batch-sizes 4:max."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.cli.app import run
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.parse import is_open, parse_sizes
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.storage.store import Store
from batchlab.study.batch_axis import to_its_end
from batchlab.study.documents import read_findings
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task


def asked(**budget: Any) -> Experiment:
    """The simulated device holds 67,108,864 bytes and 1,048,576 per sample: micro-batches of 19 in 88 MiB."""
    return build_experiment(
        merge(
            resolve_task("simulated"),
            {
                "model": {"memory_bytes": 88 * 2**20},
                "device": {"headroom": "0"},
                "batch": {"global_batch_sizes": (2,), "open_end": True},
                "sweep": {"search": "grid", "learning_rates": (0.2, 0.4), "seeds": 1, "max_extensions": 0},
                "budget": budget,
            },
        )
    )


def test_the_axis_is_parsed() -> None:
    assert (parse_sizes("4:max"), is_open("4:max")) == ((4,), True)
    assert not is_open("4:64")
    for wrong in ("max", ":max", "4:8:max", "4,8:max"):
        with pytest.raises(InputError, match="1:max"):
            parse_sizes(wrong)


def test_a_study_tries_what_fits_and_is_continued_without_new_runs(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    for _ in range(2):
        run_study(asked(token_budget=8192), folder, lambda path, workers: InlineEngine(path), SilentView())
        store = Store.open(folder)
        known = {record.run_id for _, record in store.records()}
        findings = read_findings(store)
        assert store.experiment.batch.global_batch_sizes == (2, 4, 8, 16, 32, 64, 128)  # 64 steps
        assert findings.experiment.batch.global_batch_sizes == (2, 4, 8, 16)
        assert {run.global_batch_size for run in findings.runs} == {2, 4, 8, 16}
        assert all(run.layout.grad_accum_steps == 1 for run in findings.runs)
    assert known == {record.run_id for _, record in Store.open(folder).records()}


def test_the_reference_batch_size_does_not_depend_on_memory(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    run_study(asked(token_budget=8192), folder, lambda path, workers: InlineEngine(path), SilentView(), until="check")
    assert Store.open(folder).experiment.reference_batch_size == 2


def test_a_budget_too_small_for_two_sizes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too few steps"):
        run_study(asked(token_budget=128), tmp_path / "s", lambda path, workers: InlineEngine(path), SilentView())


def test_the_command_line_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    options = ["--batch-sizes", "2:max", "--token-budget", "8192", "--search", "grid", "--learning-rates", "0.2,0.4"]
    more = ["--seeds", "1", "--set", "sweep.max_extensions=0", "--memory-limit", "88MiB"]
    assert run(["study", "simulated", "--out", str(folder), *options, *more]) in (0, 1)
    assert Store.open(folder).experiment.batch.open_end


def test_a_closed_axis_is_left_alone() -> None:
    closed = build_experiment(resolve_task("simulated"))
    assert to_its_end(closed, None) is closed  # type: ignore[arg-type]
    assert closed.within_memory(4) is closed
