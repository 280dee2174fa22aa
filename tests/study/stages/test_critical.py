"""The critical batch size of a simulated study, whose noise scale is known exactly, through the command line too."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchlab.analysis.critical.steps_finding import StepsReason
from batchlab.cli.app import run
from batchlab.core.errors import InputError, StudyChanged
from batchlab.core.experiment import build_experiment
from batchlab.core.protocols import Finished
from batchlab.core.record import NoGradientSamples, Outcome
from batchlab.core.schedule import Schedule
from batchlab.core.settings import merge
from batchlab.core.spec import TrainSpec, run_id
from batchlab.data.stream import SampleStream
from batchlab.engines.inline import InlineEngine
from batchlab.report.critical import critical_lines, critical_section
from batchlab.report.figures.build import build_figures
from batchlab.runs.step import one_step
from batchlab.simulated.machine import simulation
from batchlab.simulated.problem import training_data
from batchlab.simulated.trainable import SimulatedTrainable
from batchlab.storage.run_folder import RunFolder
from batchlab.storage.sealed import seal
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings
from batchlab.study.progress import SilentView
from batchlab.study.study import run_critical, run_study
from batchlab.study.task_source import resolve_task

SMALL = {
    "model": {"samples": 4096, "dimensions": 16},
    "sweep": {"seeds": 2, "first_seed": 1},
    "evaluation": {"samples": 16},
}


def make_engine(path: Path, workers: int) -> InlineEngine:
    return InlineEngine(path)


def study(folder: Path, **sections: Any) -> Path:
    run_study(
        build_experiment(merge(resolve_task("simulated"), {**SMALL, **sections})), folder, make_engine, SilentView()
    )
    return folder


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study(tmp_path_factory.mktemp("critical") / "swept")


@pytest.fixture(scope="module")
def settled(swept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("critical") / "settled"
    shutil.copytree(swept, folder)
    assert run(["critical", str(folder), "--run", "--devices", "2"]) == 0
    return folder


def true_noise_scale(spec: TrainSpec) -> float:
    """tr Σ over the mean of |G|² at the very steps that the run sampled: the run is repeated and looked into."""
    assert spec.gradients is not None
    world = simulation(spec.workload.model)
    problem, layout = world.problem, spec.layout
    trainable = SimulatedTrainable(world, spec.device, spec.optimizer)
    trainable.init(spec.seed)
    stream = SampleStream(training_data(problem), spec.seed)
    schedule = Schedule(spec.schedule, spec.learning_rate, spec.token_budget)
    batch = layout.global_batch_size
    squares = []
    for step in range(spec.steps):
        if (step + 1) % spec.gradients.every == 0:
            squares.append(np.sum((problem.curvature * trainable.theta) ** 2))
        one_step(trainable, stream, layout, step, schedule.mean(step * batch, (step + 1) * batch))
    return float(problem.gradient_noise * problem.curvature.sum() / np.mean(squares))


def test_the_noise_scale_of_every_run_is_the_devices(swept: Path) -> None:
    store = Store.open(swept)
    found = read_findings(store).critical
    assert found is not None
    specs = {run_id(spec): spec for spec, _ in store.records()}
    measured = 0
    for series in found.noise:
        spec = specs[series.run_id]
        assert isinstance(spec, TrainSpec)
        truth = true_noise_scale(spec)
        if series.whole.value is not None:
            measured += 1
            assert (series.whole.value.low or 0) <= truth <= (series.whole.value.high or 0), series.batch
        elif series.whole.at_least is not None:
            assert series.whole.at_least <= truth
    assert {series.batch for series in found.noise} == {4, 8, 16, 32, 64}
    assert measured >= 1


def test_a_sweep_alone_cannot_tell_steps_and_says_which_runs_would(
    swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_findings(Store.open(swept)).critical
    assert found is not None
    assert not found.branches
    run(["critical", str(swept)])
    assert "critical --run" in capsys.readouterr().out
    before = sorted(swept.glob("runs/*"))
    assert run(["critical", str(swept), "--plan-runs"]) == 0
    assert "branches of" in capsys.readouterr().out
    assert sorted(swept.glob("runs/*")) == before


def test_the_runs_it_asks_for_answer_and_the_sweeps_answer_stays(swept: Path, settled: Path) -> None:
    before, after = (read_findings(Store.open(folder)) for folder in (swept, settled))
    assert after.recommended == before.recommended
    assert after.surface == before.surface
    assert after.critical is not None
    assert len(after.critical.budgets) == 3
    assert after.critical.target is not None
    assert sum(point.steps is not None for point in after.critical.curve) >= 3
    assert [found.tokens for found in after.critical.branches] == [1024, 4096]
    assert after.critical.steps_effort.runs > 0
    assert after.critical.branch_effort.tokens > 0


def test_the_report_shows_all_three_against_tokens_and_what_a_loss_costs(settled: Path) -> None:
    found = read_findings(Store.open(settled))
    assert found.critical is not None
    figures = build_figures(found)
    drawn = {str(trace.get("name")) for trace in figures["noise-scale"].data}
    assert bool(drawn & {"accepted", "rejected"}) == any(b.at_least or b.below for b in found.critical.branches)
    assert ("B_crit (2× samples)" in drawn) == (
        found.critical.steps.twice_samples is not None and found.critical.steps.twice_samples.value is not None
    )
    assert {"1 device", "4 devices"} <= {str(trace.get("name")) for trace in figures["cost-to-target"].data}
    asked = {str(trace.get("name")) for trace in build_figures(replace(found, devices=6))["cost-to-target"].data}
    assert {name for name in asked if "device" in name} == {"1 device", "6 devices"}
    rows = [row.texts for row in critical_section(found).along.rows]
    assert sum(row[-1] != "–" for row in rows) == len(found.critical.branches)
    said = "\n".join(critical_lines(replace(found, devices=2)))
    assert "2 devices" in said
    assert max(map(len, said.splitlines())) < 130


def test_running_it_again_trains_nothing(settled: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in settled.glob("runs/*/record.json")}
    run_critical(settled, make_engine, SilentView(), execute=True)
    assert {path: path.stat().st_mtime_ns for path in settled.glob("runs/*/record.json")} == before


def test_branches_of_a_pair_share_tokens_start_and_nothing_but_the_batch_differs(settled: Path) -> None:
    branches = [s for s, _ in Store.open(settled).records() if isinstance(s, TrainSpec) and s.start and not s.keep_end]
    assert {spec.token_budget for spec in branches} == {512}
    pairs = {(spec.start, spec.seed) for spec in branches}
    assert len(pairs) == 2 * 4
    for pair in pairs:
        sizes = [spec.layout.global_batch_size for spec in branches if (spec.start, spec.seed) == pair]
        assert sorted(sizes) == [min(sizes) * k for k in (1, 2, 4, 8)]


def foreign(settled: Path, tmp_path: Path, damage: str) -> Any:
    """A branch whose checkpoint is of another model, or gone."""
    folder = tmp_path / "s"
    shutil.copytree(settled, folder)
    store = Store.open(folder)
    branch = next(s for s, _ in store.records() if isinstance(s, TrainSpec) and s.start and not s.keep_end)
    if damage == "gone":
        shutil.rmtree(folder / "runs" / str(branch.start) / "end")
        asked = branch.model_copy(update={"seed": 77})
    else:
        workload = branch.workload.model_copy(update={"model": {**branch.workload.model, "dimensions": 8}})
        asked = branch.model_copy(update={"workload": workload.model_copy(update={"data_digest": ""})})
    engine = InlineEngine(folder)
    engine.submit(asked)
    last = engine.wait(1.0)[-1]
    assert isinstance(last, Finished)
    return last.record


@pytest.mark.parametrize(
    ("damage", "sentence"), [("model", "is of another model, data or task"), ("gone", "left no whole state")]
)
def test_a_checkpoint_of_another_model_or_none_is_refused_in_a_sentence(
    settled: Path, tmp_path: Path, damage: str, sentence: str
) -> None:
    record = foreign(settled, tmp_path, damage)
    assert record.outcome is Outcome.FAILED
    assert sentence in record.reason


def test_a_target_that_no_run_reaches_is_said(settled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    shutil.copytree(settled, folder)
    content = json.loads((folder / "experiment.json").read_text())
    del content["sha256"]
    content["evaluation"]["target_loss"] = 0.5  # below the irreducible loss
    (folder / "experiment.json").write_bytes(seal(json.dumps(content, indent=1)))
    found = read_findings(Store.open(folder)).critical
    assert found is not None
    assert found.steps.status == "cannot_tell"
    assert found.steps.reason is StepsReason.NONE_REACHED


def test_a_study_without_an_answer_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    run_study(
        build_experiment(merge(resolve_task("simulated"), SMALL)), folder, make_engine, SilentView(), until="check"
    )
    with pytest.raises(InputError, match="no answer to start from"):
        run_critical(folder, make_engine, SilentView(), execute=True)
    assert run(["critical", str(folder)]) == 1
    assert run(["critical", str(tmp_path / "nothing")]) == 2
    assert run(["critical", str(folder), "--devices", "0"]) == 2


def test_one_sample_per_step_and_no_splitting_is_an_answer_too(tmp_path: Path) -> None:
    folder = study(
        tmp_path / "s",
        batch={"global_batch_sizes": (1, 4), "micro_batching": "off"},
        budget={"token_budget": 512},
        sweep={"learning_rates": (0.1, 0.2), "seeds": 1, "max_extensions": 0},
    )
    found = read_findings(Store.open(folder)).critical
    assert found is not None
    assert not found.noise
    assert (NoGradientSamples.ONE_SAMPLE,) in found.no_noise
    assert any(NoGradientSamples.ONE_MICRO_BATCH in why for why in found.no_noise)


def test_kept_ends_stay_when_a_run_is_finished(settled: Path) -> None:
    parents = [s for s, _ in Store.open(settled).records() if isinstance(s, TrainSpec) and s.keep_end]
    for parent in parents:
        folder = RunFolder(settled, parent)
        assert folder.end_of(run_id(parent)) is not None
        assert not (folder.path / "checkpoint").exists()


def test_a_study_of_edited_code_is_not_continued(settled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    shutil.copytree(settled, folder)
    mine = tmp_path / "mine.py"
    mine.write_text("x = 1\n")
    content = json.loads((folder / "decisions.json").read_text())
    del content["sha256"]
    content["task_info"]["code"] = {str(mine): "0" * 64}
    (folder / "decisions.json").write_bytes(seal(json.dumps(content, indent=1)))
    with pytest.raises(StudyChanged, match=r"mine\.py"):
        run_critical(folder, make_engine, SilentView(), execute=True)
