from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.sweep.runs import first_runs
from batchlab.analysis.values import Course
from batchlab.analysis.verdict import NotTested, SpeedUnknown
from batchlab.core.spec import TrainSpec
from batchlab.words.story import tell

Study = Callable[..., tuple[Any, Any, Any, Any, Any]]


def test_findings_recover_the_truth_behind_the_records(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study(noise_sd=0.0, best_lr=1.2e-3, peak_speed=80_000.0, half_speed_batch=10.0))
    surface, memory, speed = findings.surface, findings.memory, findings.throughput
    assert surface is not None
    assert memory is not None
    assert speed is not None
    assert surface.best is not None
    assert surface.best.global_batch_size == 16
    for row in surface.rows:
        truth = 1.2e-3 * (row.global_batch_size / 16) ** 0.5
        assert row.fit.best_learning_rate == pytest.approx(truth)
        assert row.fit.best_loss == pytest.approx(2.4 + 0.01 * {4: 4, 8: 1, 16: 0, 32: 1, 64: 4}[row.global_batch_size])
        assert row.tokens_per_second == pytest.approx(80_000 * row.global_batch_size / (row.global_batch_size + 10))
        assert row.tokens_per_second is not None
        assert row.hours == pytest.approx(409_600 / row.tokens_per_second / 3600)
    assert (memory.max_micro_batch_size, memory.status) == (48, "proved")
    assert memory.line is not None
    assert memory.line.slope == pytest.approx(20 * 2**20)
    assert speed.fastest == 64
    assert speed.knee == 64  # 32/42 is under 90 % of 64/74


def test_the_order_of_records_changes_nothing(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    shuffled = list(records)
    random.Random(1).shuffle(shuffled)
    assert assemble(experiment, task_info, shuffled, rows, decisions) == assemble(
        experiment, task_info, records, rows, decisions
    )


def test_without_noise_only_the_best_is_recommended(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study(seeds=1, batch_curvature=0.0005))
    assert findings.surface is not None
    assert findings.surface.best is not None
    assert findings.recommended is not None
    assert findings.recommended.layout.global_batch_size == findings.surface.best.global_batch_size
    assert isinstance(findings.recommended.reason, NotTested)


def test_without_speed_the_best_is_recommended(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    untimed = [(spec, record) for spec, record in records if spec.kind != "throughput"]
    findings = assemble(experiment, task_info, untimed, rows, decisions)
    assert findings.throughput is None
    assert findings.recommended is not None
    assert findings.recommended.reason == SpeedUnknown()


@pytest.mark.parametrize("keep", range(0, 25, 3))
def test_a_study_cut_anywhere_still_gives_findings(synthetic_study: Study, keep: int) -> None:
    findings = assemble(*synthetic_study(keep=keep), planned_runs=24, partial=True)
    assert len(findings.runs) == keep
    assert findings.partial
    assert all(answer.answer for answer in tell(findings).answers)
    assert (findings.recommended is None) == (keep == 0)


def test_the_subject_may_be_as_stored_and_decisions_may_be_missing(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    stored = assemble(experiment, task_info.model_dump(mode="json"), records, rows, decisions)
    assert stored.task_info == task_info
    bare = assemble(experiment, task_info, records)
    assert bare.token_budget == 409_600
    assert all(run.rows == () for run in bare.runs)


def test_runs_are_in_order_and_those_that_are_drawn_carry_their_rows(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study(diverges_above=3.0)
    read: list[str] = []

    def counted(run_id: str) -> Any:
        read.append(run_id)
        return rows(run_id)

    found = assemble(experiment, task_info, records, counted, decisions, course=lambda run_id: Course(judged=True))
    keys = [(run.global_batch_size, run.learning_rate, run.seed) for run in found.runs]
    assert keys == sorted(keys)
    assert len(found.runs) == sum(isinstance(spec, TrainSpec) for spec, _ in records)
    assert all(run.val_loss is None for run in found.runs if run.outcome == "diverged")
    assert found.surface is not None
    assert sorted(read) == sorted(run.run_id for _, run in first_runs(found.surface))
    in_cells = [run for row in found.surface.rows for cell in row.cells for run in cell.runs if run.rows]
    assert sorted(run.run_id for run in in_cells) == sorted(read)
    assert all(any(cell is row.best for cell in row.cells) for row in found.surface.rows if row.best)
    assert any(row is found.surface.best for row in found.surface.rows)
    assert found.diagnostics.judged_runs == len(found.runs)


def test_analysis_needs_neither_torch_nor_plotting() -> None:
    code = (
        "import sys, batchlab.analysis.assemble, batchlab.words.summary, batchlab.plan, batchlab.search.grid; "
        "print([m for m in ('torch', 'scipy', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
