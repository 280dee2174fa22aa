"""Which runs `critical --run` makes of a study's schedule, and what they are worth, on the simulated device."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.analysis.critical.finding import CriticalFinding
from batchlab.analysis.critical.steps_from_runs import is_cooldown, seen_at_end
from batchlab.cli.app import run
from batchlab.core.experiment import ScheduleConfig, build_experiment
from batchlab.core.record import TrainResult
from batchlab.core.settings import merge
from batchlab.core.spec import TrainSpec, run_id
from batchlab.engines.inline import InlineEngine
from batchlab.storage.decisions import CriticalRound, Decisions
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings
from batchlab.study.progress import SilentView
from batchlab.study.study import run_critical, run_study
from batchlab.study.task_source import resolve_task

pytestmark = pytest.mark.slow

SMALL = {
    "model": {"samples": 4096, "dimensions": 16},
    "sweep": {"seeds": 2, "first_seed": 1, "search": "grid", "learning_rates": (0.2, 0.4), "max_extensions": 0},
    "evaluation": {"samples": 16},
    "noise": {"points": 0},
    "critical": {"checkpoints": (0.25,), "multipliers": (1, 2), "pairs": 3},
}


def make_engine(path: Path, workers: int) -> InlineEngine:
    return InlineEngine(path)


def study(folder: Path, sizes: tuple[int, ...], schedule: str) -> Path:
    asked = merge(
        resolve_task("simulated"),
        {**SMALL, "batch": {"global_batch_sizes": sizes}, "schedule": {"kind": schedule}, "diagnostics": "off"},
    )
    run_study(build_experiment(asked), folder, make_engine, SilentView())
    return folder


def critical(folder: Path) -> CriticalFinding:
    found = read_findings(Store.open(folder)).critical
    assert found is not None
    return found


def trained(folder: Path) -> list[tuple[TrainSpec, float]]:
    return [
        (spec, record.result.val_loss)
        for spec, record in Store.open(folder).records()
        if isinstance(spec, TrainSpec) and isinstance(record.result, TrainResult) and record.result.val_loss
    ]


def loss_of(folder: Path, asked: TrainSpec) -> float:
    return next(loss for spec, loss in trained(folder) if spec == asked)


def run_one(folder: Path, spec: TrainSpec) -> float:
    engine = InlineEngine(folder)
    engine.submit(spec)
    result = engine.wait(1.0)[-1].record.result  # type: ignore[union-attr]
    assert isinstance(result, TrainResult)
    assert result.val_loss is not None
    return result.val_loss


@pytest.fixture(scope="module")
def wsd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = study(tmp_path_factory.mktemp("wsd") / "s", (1, 2, 4, 8), "wsd")
    run_critical(folder, make_engine, SilentView(), execute=True)
    return folder


def test_a_decay_out_of_a_constant_run_is_what_a_whole_run_of_that_length_comes_to(wsd: Path) -> None:
    """Same samples in the same order, same learning rates, so the same loss but for rounding of the schedule."""
    specs = {run_id(spec): spec for spec, _ in trained(wsd)}
    parents = {identity: spec for identity, spec in specs.items() if spec.keep_end}
    decays = [(spec, loss) for spec, loss in trained(wsd) if is_cooldown(spec)]
    warmup = 0.1 * max(spec.token_budget for spec in specs.values())
    for spec, loss in [one for one in decays if one[0].layout.global_batch_size == 4]:
        tokens = seen_at_end(spec.start, parents) + spec.token_budget
        shares = {"warmup_fraction": warmup / tokens, "decay_fraction": spec.token_budget / tokens}
        schedule = ScheduleConfig(kind="wsd", **shares)
        whole = spec.model_copy(
            update={"start": None, "token_budget": tokens, "schedule": schedule, "evaluation_interval": tokens}
        )
        assert run_one(wsd, whole) == pytest.approx(loss, rel=1e-9)


def test_decays_answer_and_cost_less_than_runs_of_their_own(wsd: Path) -> None:
    found = critical(wsd)
    assert found.steps_source == "decays"
    assert found.budgets == (1024, 2048, 4096)
    assert sum(point.steps is not None for point in found.curve) >= 3
    cells = {(spec.layout.global_batch_size, spec.learning_rate) for spec, _ in trained(wsd) if is_cooldown(spec)}
    of_their_own = sum(1024 + 2048 + (0 if size in (1, 2, 4, 8) else 4096) for size, _ in cells)
    assert found.steps_effort.tokens < 0.8 * of_their_own
    assert found.branches  # which are distinguished from decays


def test_end_states_are_freed_when_no_run_starts_from_them_and_made_again_when_needed(wsd: Path) -> None:
    store = Store.open(wsd)
    decay = next(spec for spec, _ in trained(wsd) if is_cooldown(spec))
    assert decay.start is not None
    assert not store.has_end(decay.start)
    before = loss_of(wsd, decay)
    store.forget(run_id(decay))
    run_critical(wsd, make_engine, SilentView(), execute=True)
    assert loss_of(wsd, decay) == before


def test_at_constant_learning_rate_the_sweep_alone_shows_steps_to_a_loss(tmp_path: Path) -> None:
    folder = study(tmp_path / "s", (2, 4, 8, 16), "constant")
    found = critical(folder)
    assert found.steps_source == "constant_lr"
    assert sum(point.steps is not None for point in found.curve) >= 3
    assert found.steps_effort.runs == 0
    assert found.target is not None
    curves = [
        (spec, record.result.val_curve)
        for spec, record in Store.open(folder).records()
        if isinstance(spec, TrainSpec) and isinstance(record.result, TrainResult) and spec.seed == 1
    ]
    for point in found.curve:
        if point.tokens is None:
            continue
        seen = [
            (tokens, loss)
            for spec, curve in curves
            for tokens, loss in curve
            if spec.layout.global_batch_size == point.batch
            and tokens > spec.warmup_tokens
            and tokens >= 50 * point.batch
        ]
        assert all(loss > found.target for tokens, loss in seen if tokens < point.tokens)
        assert any(tokens >= point.tokens for tokens, _ in seen)


def test_sizes_that_would_settle_it_are_planned_trained_and_kept_out_of_the_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study(tmp_path / "s", (1, 2), "cosine")
    before = read_findings(Store.open(folder))
    assert before.critical is not None
    named = {round(planned.batch) for planned in before.critical.steps.settle} - {1, 2}
    assert max(named) > 2
    assert run(["critical", str(folder), "--plan-runs"]) == 0
    planned = capsys.readouterr().out
    run_critical(folder, make_engine, SilentView(), execute=True)
    after = read_findings(Store.open(folder))
    assert after.surface == before.surface
    assert after.critical is not None
    tried = {point.batch for point in after.critical.curve}
    assert set(Store.open(folder).decisions().critical_rounds[1].sizes) == named
    new = tried - {1, 2}
    assert new
    assert new <= named
    for size in named:
        assert (f"Batch {size:,} would narrow" in planned) == (size not in tried), size
        assert f"{size}" in planned
    for size in new:  # at the study's own budget as well as the shorter ones
        budgets = {spec.token_budget for spec, _ in trained(folder) if spec.layout.global_batch_size == size}
        assert max(budgets) == before.token_budget


def test_an_interrupted_round_continues_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever its first runs have shown: which runs exist does not depend on when it stopped."""
    folder = study(tmp_path / "s", (1, 2), "cosine")
    store = Store.open(folder)
    store.decide(Decisions(critical_rounds={1: CriticalRound(sizes=(4, 16), longer=())}))
    assert run(["critical", str(folder), "--plan-runs"]) == 0
    assert "at batch 1, 2, 4 and 16" in capsys.readouterr().out
    run_critical(folder, make_engine, SilentView(), execute=True)
    assert {spec.layout.global_batch_size for spec, _ in trained(folder) if not spec.start} >= {1, 2, 4, 16}
    assert set(store.decisions().critical_rounds) == {1}
    run(["critical", str(folder), "--plan-runs"])
    assert "at batch 1, 2, 4 and 16" not in capsys.readouterr().out  # only what a further round would add
