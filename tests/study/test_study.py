"""A whole study on the simulated device, in seconds, with its answers compared with the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchlab.cli.app import run
from batchlab.core.batch import lay_out
from batchlab.core.errors import InputError, StudyChanged
from batchlab.core.experiment import build_experiment
from batchlab.core.record import Outcome
from batchlab.core.schedule import Schedule
from batchlab.core.settings import merge
from batchlab.core.spec import CapacitySpec, TrainSpec
from batchlab.engines.inline import InlineEngine
from batchlab.simulated.machine import simulation
from batchlab.storage.decisions import StopReason
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings
from batchlab.study.progress import SilentView
from batchlab.study.study import StudyResult, run_study
from batchlab.study.task_source import resolve_task
from batchlab.words.story import tell


def study(folder: Path, **sections: Any) -> StudyResult:
    asked = build_experiment(merge(resolve_task("simulated"), sections))
    return run_study(asked, folder, lambda path, workers: InlineEngine(path), SilentView())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return study(tmp_path_factory.mktemp("simulated") / "study")


def test_it_answers_and_leaves_every_document(finished: StudyResult) -> None:
    assert finished.answered
    assert len(finished.summary) == 5
    for name in ("report.html", "report.md", "training_plan.json", "outcomes.csv", "results.csv", "notes.md"):
        assert (finished.folder / name).stat().st_size > 0, name
    plan = json.loads((finished.folder / "training_plan.json").read_text())
    recommended = finished.findings.recommended
    assert recommended is not None
    assert plan["batch_configuration"]["global_batch_size"] == recommended.layout.global_batch_size
    assert not finished.findings.partial


def test_the_memory_line_is_the_devices(finished: StudyResult) -> None:
    machine = simulation({}).machine
    memory = finished.findings.memory
    assert memory is not None
    assert memory.line is not None
    assert memory.line.slope == pytest.approx(machine.bytes_per_sample, rel=1e-6)
    assert memory.line.intercept == pytest.approx(machine.fixed_bytes, rel=1e-6)
    assert memory.max_micro_batch_size == 64


def test_a_verifying_probe_takes_what_training_runs_take(finished: StudyResult) -> None:
    specs = [spec for spec, _ in Store.open(finished.folder).records()]
    probes = [spec for spec in specs if isinstance(spec, CapacitySpec) and spec.steps >= 3]
    assert probes
    assert all(probe.gradients is not None and probe.snapshot == "light" for probe in probes)
    assert any(isinstance(spec, TrainSpec) and spec.gradients is not None for spec in specs)


def test_throughput_is_the_devices(finished: StudyResult) -> None:
    machine = simulation({}).machine
    throughput = finished.findings.throughput
    assert throughput is not None
    for point in throughput.points:
        assert point.tokens_per_second.value == pytest.approx(machine.samples_per_second(point.layout), rel=1e-6)


def test_each_run_ends_near_its_expected_loss_and_the_best_cell_is_the_true_best(finished: StudyResult) -> None:
    problem = simulation({}).problem
    expected: dict[tuple[int, float], float] = {}
    for spec, record in Store.open(finished.folder).records():
        if not isinstance(spec, TrainSpec) or record.outcome is not Outcome.COMPLETED:
            continue
        schedule = Schedule(spec.schedule, spec.learning_rate, spec.token_budget)
        batch = spec.layout.global_batch_size
        rates = [schedule.mean(k * batch, (k + 1) * batch) for k in range(spec.steps)]
        truth = problem.expected_loss(rates, batch)
        expected[batch, spec.learning_rate] = truth
        assert record.result is not None
        assert record.result.kind == "train"
        assert record.result.val_loss == pytest.approx(truth, rel=0.25)
        assert record.pairing == "verified"
    best = finished.findings.surface.best if finished.findings.surface else None
    assert best is not None
    assert best.best is not None
    reached = expected[best.global_batch_size, best.best.learning_rate]
    assert reached <= min(expected.values()) * 1.05, "the chosen cell is more than 5 % above the true best"


def test_running_it_again_does_nothing_and_says_the_same(finished: StudyResult) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.folder.glob("runs/*/record.json")}
    outcomes = (finished.folder / "outcomes.csv").read_bytes()
    again = study(finished.folder)
    assert again.summary == finished.summary
    assert {path: path.stat().st_mtime_ns for path in finished.folder.glob("runs/*/record.json")} == before
    assert (finished.folder / "outcomes.csv").read_bytes() == outcomes


def test_another_question_in_the_same_folder_is_refused_with_the_fields(finished: StudyResult) -> None:
    with pytest.raises(StudyChanged, match=r"sweep\.seeds"):
        study(finished.folder, sweep={"seeds": 5})


def test_the_largest_sizes_are_split_when_they_do_not_fit(tmp_path: Path) -> None:
    machine = simulation({}).machine
    limit = machine.peak_bytes(20)
    result = study(tmp_path / "s", device={"name": "simulated", "memory_limit": limit, "headroom": "0"})
    memory, surface = result.findings.memory, result.findings.surface
    assert memory is not None
    assert surface is not None
    assert (memory.max_micro_batch_size, memory.status, memory.smallest_failed) == (20, "verified", None)
    for row in surface.rows:
        assert row.layout == lay_out(row.global_batch_size, 20)
        assert row.best is not None


def test_with_micro_batching_off_they_are_out_of_memory_and_the_study_finishes(tmp_path: Path) -> None:
    limit = simulation({}).machine.peak_bytes(20)
    result = study(
        tmp_path / "s",
        device={"name": "simulated", "memory_limit": limit},
        batch={"micro_batching": "off"},
    )
    outcomes = {run.global_batch_size: run.outcome for run in result.findings.runs}
    assert outcomes[32] is outcomes[64] is Outcome.OUT_OF_MEMORY
    assert outcomes[16] is Outcome.COMPLETED
    assert result.answered
    assert any("micro" in failure.remedy.lower() for failure in tell(result.findings).failures)


def test_nothing_fits_is_an_answer_too(tmp_path: Path) -> None:
    limit = simulation({}).machine.fixed_bytes
    result = study(tmp_path / "s", device={"name": "simulated", "memory_limit": limit})
    assert not result.answered
    assert result.findings.memory is not None
    assert result.findings.memory.status == "none"
    assert len(result.summary) == 5
    assert (result.folder / "report.html").exists()


def test_all_diverged_says_so_instead_of_recommending(tmp_path: Path) -> None:
    result = study(tmp_path / "s", sweep={"learning_rates": [20.0, 40.0, 80.0, 160.0], "max_extensions": 0})
    assert not result.answered
    assert result.findings.surface is not None
    assert result.findings.surface.no_best
    assert not (result.folder / "training_plan.json").exists()


def test_an_adaptive_search_that_only_diverges_gives_up_and_says_so(tmp_path: Path) -> None:
    """Each update adds an error so large that no learning rate trains."""
    sweep = {"search": "adaptive", "learning_rates": [0.4, 1.6]}
    result = study(
        tmp_path / "s", sweep=sweep, batch={"global_batch_sizes": (8, 16)}, model={"rounding": 1e3, "samples": 1024}
    )
    assert not result.answered
    assert {run.outcome for run in result.findings.runs} == {Outcome.DIVERGED}
    assert result.findings.search_stopped is not None
    assert result.findings.search_stopped.reason is StopReason.NO_FINITE_LOSS


def test_one_seed_claims_nothing_about_noise(tmp_path: Path) -> None:
    result = study(tmp_path / "s", sweep={"seeds": 1})
    assert result.findings.surface is not None
    assert result.findings.surface.noise_sd is None
    assert "n = 1" in "\n".join(result.summary)


def test_a_budget_smaller_than_one_batch_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="token budget"):
        study(tmp_path / "s", budget={"token_budget": 32})
    assert not (tmp_path / "s").exists()


def test_a_study_decides_budget_from_time_once(tmp_path: Path) -> None:
    asked = {"budget": {"token_budget": None, "time_budget_seconds": 0.5}}
    first = study(tmp_path / "s", **asked)
    decided = Store.open(first.folder).decisions().budget
    assert decided is not None
    assert first.findings.token_budget == decided.token_budget
    assert decided.token_budget % (64 * 1) == 0
    study(tmp_path / "s", **asked)
    assert Store.open(first.folder).decisions().budget == decided


def test_max_runs_bounds_the_sweep(tmp_path: Path) -> None:
    result = study(tmp_path / "s", budget={"max_runs": 12})
    assert len({(run.global_batch_size, run.learning_rate) for run in result.findings.runs}) == 12
    assert len(result.findings.runs) > 12


def test_sizes_with_too_few_steps_are_run_but_never_judged(tmp_path: Path) -> None:
    result = study(tmp_path / "s", budget={"token_budget": 64 * 30}, batch={"global_batch_sizes": [4, 8, 16, 64]})
    surface = result.findings.surface
    assert surface is not None
    largest = surface.rows[-1]
    assert largest.undertrained
    assert not largest.tied
    assert surface.best is not None
    assert surface.best.global_batch_size < 64


def test_without_any_budget_a_run_goes_over_its_data_a_bounded_number_of_times(tmp_path: Path) -> None:
    small = {"model": {"samples": 256}, "budget": {"token_budget": None}}
    result = study(tmp_path / "s", **small)
    assert result.findings.token_budget == 30 * 256
    assert max(run.epochs for run in result.findings.runs) == pytest.approx(30)


def test_an_adaptive_sweep_reaches_the_grids_best_cell_with_fewer_runs(finished: StudyResult, tmp_path: Path) -> None:
    result = study(tmp_path / "s", sweep={"search": "adaptive"})
    assert result.answered
    grid, adaptive = finished.findings, result.findings
    assert grid.surface is not None
    assert adaptive.surface is not None
    assert grid.surface.best is not None
    assert adaptive.surface.best is not None
    assert grid.surface.best.val_loss is not None
    assert adaptive.surface.best.val_loss is not None
    assert len(adaptive.runs) < len(grid.runs)
    assert adaptive.surface.best.val_loss.value <= grid.surface.best.val_loss.value * 1.02
    again = study(result.folder, sweep={"search": "adaptive"})
    assert len(again.findings.runs) == len(adaptive.runs)


def test_the_capacity_command_says_the_largest_that_fits_and_one_more_that_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    largest = simulation({}).machine.max_micro_batch_size()
    arguments = ["capacity", "simulated", "--out", str(tmp_path / "s"), "--headroom", "0", "--prove"]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert f"micro-batch {largest} within 1.00 GiB" in printed
    assert "proved" in printed
    found = read_findings(Store.open(tmp_path / "s")).memory
    assert found is not None
    assert (found.max_micro_batch_size, found.status, found.smallest_failed) == (largest, "proved", largest + 1)
    report = (tmp_path / "s" / "report.md").read_text()
    assert f"{largest:,}" in report
    assert f"{largest + 1:,}" in report


def test_a_plan_for_what_was_not_trained_is_run_for_fifty_steps_once(
    finished: StudyResult, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished.folder
    trained = json.loads((folder / "training_plan.json").read_text())["provenance"]["micro_batch_size"]
    assert "memory" in trained["source"]
    before = set((folder / "runs").iterdir())
    command = ["plan", str(folder), "--devices", "3", "--batch-size", "36"]
    assert run(command) == 0
    assert "50 steps" in capsys.readouterr().out
    for _ in range(2):
        assert run([*command, "--recheck"]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert "50 whole steps" in plan["provenance"]["micro_batch_size"]["source"]
        (made,) = set((folder / "runs").iterdir()) - before
        spec = json.loads((made / "spec.json").read_text())
        assert (spec["kind"], spec["steps"], spec["micro_batch_size"]) == ("capacity", 50, 12)
