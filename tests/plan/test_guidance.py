"""The checklist, the verification steps and the checkpoints of a plan, and a reader of somebody else's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.plan.calibrated import calibrated

from batchlab.analysis.findings import Findings
from batchlab.plan import format_plan, make_plan

GUIDE = Path(__file__).parents[2] / ".." / "shared" / "seeds" / "002_bcb1599725574287.txt"


def test_the_losses_to_compare_are_those_of_the_study(findings: Findings) -> None:
    plan = make_plan(findings)
    assert findings.surface is not None
    [row] = [row for row in findings.surface.rows if row.global_batch_size == 64]
    assert row.best is not None
    curves = [dict(run.val_curve) for run in row.best.runs]
    steps = [step for step in plan.verification_steps if step.quantity == "val_loss"]
    assert steps
    assert [step.after_step for step in steps] == sorted({step.after_step for step in steps})
    assert steps[-1].after_step == plan.batch_configuration.steps
    for step in steps:
        losses = [curve[step.after_step * plan.batch_configuration.tokens_per_step] for curve in curves]
        assert (step.low, step.high) == (min(losses), max(losses))


def test_the_speed_to_compare_is_a_range_only_where_it_was_measured(findings: Findings) -> None:
    one, four = make_plan(findings), make_plan(findings, 4)
    [alone] = [step for step in one.verification_steps if step.quantity == "tokens_per_second"]
    [shared] = [step for step in four.verification_steps if step.quantity == "tokens_per_second"]
    assert alone.low is not None
    assert shared.low is None
    assert shared.high == four.performance_targets.tokens_per_second


def test_the_checklist_has_what_the_run_needs(findings: Findings) -> None:
    plan = make_plan(findings, 4)
    needed = {item.name: item.needed for item in plan.pre_flight_checklist}
    assert needed["data"] == plan.made_from.data_digest
    assert needed["devices"].startswith("4 × ")
    assert plan.task is not None
    assert plan.checkpoint_strategy is not None
    parameters = plan.task.parameter_count
    assert parameters
    assert plan.checkpoint_strategy.state_bytes == 16 * parameters


def test_warm_up_in_epochs(findings: Findings) -> None:
    c = make_plan(findings).batch_configuration
    assert c.training_samples == findings.task_info.train_samples
    assert c.warmup_epochs == pytest.approx(c.warmup_tokens / (c.training_samples or 0) / c.sequence_length)


@pytest.mark.parametrize("devices", [1, 4])
def test_the_guide_s_own_reader_runs_on_a_plan(
    findings: Findings,
    devices: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Unedited. What it calls num_gpus, it leaves to whoever runs it."""
    if not GUIDE.exists():
        pytest.skip("the guide is not beside this checkout (../shared/seeds)")
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    [reader] = [block for block in blocks if "training_plan.json" in block]
    plan = make_plan(calibrated(findings), devices)
    (tmp_path / "training_plan.json").write_text(format_plan(plan, "json"))
    monkeypatch.chdir(tmp_path)
    exec(compile(reader, str(GUIDE), "exec"), {"num_gpus": plan.batch_configuration.data_parallel_size})
    printed = capsys.readouterr().out
    assert f"Effective batch size: {plan.batch_configuration.global_batch_size}" in printed
    assert f"Learning rate: {plan.batch_configuration.learning_rate}" in printed
    calibration = json.loads((tmp_path / "training_plan.json").read_text())["hardware_calibration"]
    assert set(calibration) == {"measured_performance", "workload_distribution", "all_reduce"}
