from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from batchlab.analysis.assemble import assemble
from batchlab.analysis.extrapolation import Target
from batchlab.analysis.findings import Findings
from batchlab.core.check import CheckResult
from batchlab.core.errors import InputError
from batchlab.core.record import Outcome, Record
from batchlab.core.spec import CheckSpec
from batchlab.plan import Format, TrainingPlan, format_plan, make_plan, paste_block
from batchlab.scaling import Optimum

Study = Callable[..., Any]


@pytest.fixture
def findings(synthetic_study: Study) -> Findings:
    """Batch 64 in two micro-batches of 32 is the fastest of five statistically tied sizes."""
    return assemble(*synthetic_study(batch_curvature=0.0005))


def test_one_device_is_what_was_measured(findings: Findings) -> None:
    plan = make_plan(findings)
    c = plan.batch_configuration
    assert (c.micro_batch_size, c.grad_accum_steps, c.data_parallel_size, c.global_batch_size) == (32, 2, 1, 64)
    assert (c.per_gpu_batch_size, c.gradient_accumulation_steps, c.total_batch_size) == (32, 2, 64)
    assert (c.tokens_per_step, c.token_budget, c.steps) == (4096, 409_600, 100)
    assert (c.warmup_tokens, c.warmup_steps) == (40_960, 10)
    assert c.learning_rate == 3e-3
    assert c.optimizer.beta2 == pytest.approx(0.95**4)
    assert plan.made_from.study == "synthetic"
    assert plan.made_from.run_ids
    assert set(plan.made_from.run_ids) <= {run.run_id for run in findings.runs}
    assert plan.provenance["learning_rate"].status == "measured"
    assert plan.provenance["micro_batch_size"].status == "measured"
    assert plan.provenance["measured_performance"].status == "measured"
    assert plan.hardware_calibration.measured_performance == {"worker-0": pytest.approx(60_000 * 64 / 70)}
    assert plan.expectation.hours == pytest.approx(409_600 / (60_000 * 64 / 70) / 3600)


@pytest.mark.parametrize("devices", [1, 2, 4, 8, 16, 32, 64])
def test_the_global_batch_and_rate_stay_on_any_number_of_devices(findings: Findings, devices: int) -> None:
    plan = make_plan(findings, devices=devices)
    c = plan.batch_configuration
    assert c.micro_batch_size * c.grad_accum_steps * c.data_parallel_size == c.global_batch_size == 64
    assert c.learning_rate == 3e-3
    assert c.micro_batch_size <= 48
    shares = plan.hardware_calibration.workload_distribution
    assert len(shares) == devices
    assert sum(shares.values()) == pytest.approx(1)
    if devices > 1:
        assert plan.provenance["measured_performance"].status == "extrapolated"
        assert plan.provenance["micro_batch_size"].status == "extrapolated"
        assert plan.provenance["expectation.hours"].status == "extrapolated"


@pytest.mark.parametrize(
    ("devices", "says"),
    [(3, "use 2 or 4 devices"), (65, "at most 64 devices"), (0, "at least 1"), (63, "use 32 or 64 devices")],
)
def test_devices_that_cannot_share_the_batch(findings: Findings, devices: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_plan(findings, devices=devices)


def test_another_measured_batch_has_its_own_rate_and_beta2(findings: Findings) -> None:
    plan = make_plan(findings, target=Target(8))
    assert plan.batch_configuration.global_batch_size == 8
    assert plan.batch_configuration.learning_rate == 1e-3
    assert plan.batch_configuration.optimizer.beta2 == pytest.approx(0.95**0.5)


def test_a_batch_that_was_not_measured_is_carried_to_and_every_number_says_so(findings: Findings) -> None:
    plan = make_plan(findings, target=Target(24))
    c = plan.batch_configuration
    assert (c.global_batch_size, c.token_budget) == (24, 409_600 // (24 * 64) * 24 * 64)
    measured = {row.global_batch_size: row.best.learning_rate for row in findings.surface.rows if row.best}  # type: ignore[union-attr]
    low, high = sorted((measured[16], measured[32]))
    assert low <= c.learning_rate <= high
    rate = plan.provenance["learning_rate"]
    assert rate.status == "extrapolated"
    assert "interpolated" in rate.rule
    assert rate.range
    assert plan.provenance["optimizer.beta2"].status == "extrapolated"
    assert c.optimizer.beta2 == pytest.approx(0.95 ** (24 / 16))
    assert plan.expectation.val_loss is None
    assert "at batch 24" in plan.confirm
    assert "extrapolated: learning_rate" in paste_block(plan)
    tomllib.loads(paste_block(plan))
    assert format_plan(plan, "torchtitan").startswith("# extrapolated")
    assert TrainingPlan.model_validate_json(format_plan(plan)) == plan


def test_another_budget_moves_batch_and_rate_with_interval_and_names_its_confirmation(findings: Findings) -> None:
    plan = make_plan(findings, target=Target(token_budget=4 * 409_600))
    c, rate = plan.batch_configuration, plan.provenance["learning_rate"]
    assert c.token_budget == 4 * 409_600
    assert findings.surface is not None
    assert findings.surface.best is not None
    assert c.global_batch_size >= findings.surface.best.global_batch_size  # B_opt rises with the budget
    assert plan.provenance["global_batch_size"].status == "extrapolated"
    assert "D^" in plan.provenance["global_batch_size"].rule
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < c.learning_rate < rate.high
    assert c.warmup_tokens == pytest.approx(4 * 40_960, rel=0.01)
    assert "8 runs at 102k" in plan.confirm
    several = replace(findings, earlier_optima=(Optimum(100_000.0, 8.0, 1e-3),))
    own = make_plan(several, target=Target(token_budget=4 * 409_600))
    assert "measured budgets" in own.provenance["global_batch_size"].rule


def test_a_wider_model_has_no_speed_and_a_lower_rate(findings: Findings) -> None:
    parameters = findings.task_info.parameter_count
    plan = make_plan(findings, target=Target(parameters=4 * parameters))
    assert findings.surface is not None
    assert findings.surface.best is not None
    assert findings.surface.best.best is not None
    assert plan.hardware_calibration.measured_performance == {}
    assert plan.provenance["learning_rate"].rule.count("N^") == 1
    assert plan.batch_configuration.learning_rate < findings.surface.best.best.learning_rate
    assert "the model of" in plan.confirm


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (Target(2048), "steps of a budget"),
        (Target(token_budget=1000 * 409_600), "nothing is extrapolated further than 30"),
        (Target(parameters=10**15), "nothing is extrapolated further than 30"),
        (Target(1024, 20 * 409_600), "8 ×"),
    ],
)
def test_beyond_the_rules_nothing_is_planned(findings: Findings, target: Target, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_plan(findings, target=target)


@pytest.mark.parametrize("settings", [{"diverges_above": 0.0}, {"keep": 0}, {"token_budget": 64 * 64}])
def test_no_plan_without_an_answer(synthetic_study: Study, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no plan because the study has no answer"):
        make_plan(assemble(*synthetic_study(**settings)))


def test_a_starved_batch_is_not_planned_for(synthetic_study: Study) -> None:
    with pytest.raises(InputError, match="under 50 steps"):
        make_plan(assemble(*synthetic_study(token_budget=64 * 64 * 20)), target=Target(64))


def test_a_model_that_mixes_samples_stays_on_one_device(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    check = CheckSpec(workload=records[0][0].workload)
    result = CheckResult(items=(), sample_independent=False)
    records = [*records, (check, Record(run_id="c", outcome=Outcome.COMPLETED, result=result))]
    findings = assemble(experiment, task_info, records, rows, decisions)
    make_plan(findings)
    with pytest.raises(InputError, match="mixes the samples"):
        make_plan(findings, devices=2)


def test_every_number_names_its_source(findings: Findings) -> None:
    for devices in (1, 8):
        plan = make_plan(findings, devices=devices)
        numbers = set(type(plan.batch_configuration).model_fields) - {
            "unit",
            "sequence_length",
            "precision",
            "compile",
            "per_gpu_batch_size",
            "total_batch_size",
            "gradient_accumulation_steps",
        }
        assert numbers <= set(plan.provenance)
        assert all(entry.source for entry in plan.provenance.values())


def test_json_round_trip_and_schema(findings: Findings) -> None:
    plan = make_plan(findings, devices=2)
    assert TrainingPlan.model_validate_json(format_plan(plan, "json")) == plan
    schema = TrainingPlan.model_json_schema()
    assert "batch_configuration" in schema["properties"]
    json.dumps(schema)


def test_a_plan_edited_in_one_spelling_only_is_refused(findings: Findings) -> None:
    values = json.loads(format_plan(make_plan(findings), "json"))
    values["batch_configuration"]["per_gpu_batch_size"] = 7
    with pytest.raises(ValidationError, match="two spellings of one number"):
        TrainingPlan.model_validate(values)
    values["batch_configuration"]["micro_batch_size"] = 7
    with pytest.raises(ValidationError, match="grad_accum_steps"):
        TrainingPlan.model_validate(values)


def test_hugging_face_arguments(findings: Findings) -> None:
    arguments = json.loads(format_plan(make_plan(findings, devices=2), "hf"))
    assert arguments["per_device_train_batch_size"] == 32
    assert arguments["gradient_accumulation_steps"] == 1
    assert arguments["max_steps"] == 100
    assert arguments["warmup_steps"] == 10
    assert arguments["adam_beta2"] == pytest.approx(0.95**4)
    assert arguments["lr_scheduler_type"] == "cosine_with_min_lr"
    assert arguments["lr_scheduler_kwargs"] == {"min_lr_rate": 0.1}
    assert arguments["bf16"] is False


@pytest.mark.parametrize(
    ("kind", "name", "decay"),
    [
        ("constant", "constant_with_warmup", {"decay_ratio": 0.0}),
        ("wsd", "warmup_stable_decay", {"decay_type": "linear", "decay_ratio": 0.2}),
    ],
)
def test_other_schedules(synthetic_study: Study, kind: str, name: str, decay: dict[str, Any]) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"schedule": {"kind": kind}})))
    assert json.loads(format_plan(plan, "hf"))["lr_scheduler_type"] == name
    scheduler = tomllib.loads(format_plan(plan, "torchtitan"))["lr_scheduler"]
    assert {key: scheduler[key] for key in decay} == decay


def test_torchtitan_counts_sequences(findings: Findings) -> None:
    values = tomllib.loads(format_plan(make_plan(findings, devices=4), "torchtitan"))
    assert values["training"] | {"local_batch_size": 16, "global_batch_size": 64, "seq_len": 64} == values["training"]
    assert values["optimizer"]["lr"] == 3e-3


def test_nanochat_counts_tokens(findings: Findings) -> None:
    text = format_plan(make_plan(findings, devices=2), "nanochat")
    assert "--total-batch-size=4096" in text
    assert "--device-batch-size=32" in text
    assert "--nproc_per_node=2" in text


def test_torchrun_is_one_command(findings: Findings) -> None:
    words = shlex.split(format_plan(make_plan(findings, devices=8), "torchrun"))
    assert words[:5] == ["torchrun", "--standalone", "--nproc-per-node", "8", "your_train.py"]
    assert words[words.index("--micro-batch-size") + 1] == "8"


def test_an_unknown_format_names_those_there_are(findings: Findings) -> None:
    with pytest.raises(InputError, match="torchtitan"):
        format_plan(make_plan(findings), "yaml")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sgd", "task"])
@pytest.mark.parametrize("format", ["hf", "torchtitan"])
def test_an_optimizer_that_a_trainer_cannot_express_is_not_left_out(
    synthetic_study: Study, name: str, format: Format
) -> None:
    plan = make_plan(assemble(*synthetic_study(settings={"optimizer": {"name": name}})))
    assert plan.batch_configuration.optimizer.beta2 is None
    with pytest.raises(InputError, match="cannot express"):
        format_plan(plan, format)
    assert "beta2" not in format_plan(plan, "torchrun")


def test_samples_have_no_nanochat_and_no_sequence_length(synthetic_study: Study) -> None:
    plan = make_plan(assemble(*synthetic_study(unit="samples", token_budget=6400)))
    with pytest.raises(InputError, match="counts samples"):
        format_plan(plan, "nanochat")
    assert "sequence_length" not in plan.paste_block


def test_uneven_micro_batches_are_not_exported(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study(sizes=(11, 22, 45), max_micro_batch_size=7, token_budget=990 * 64 * 10))
    plan = make_plan(findings, target=Target(45))
    c = plan.batch_configuration
    assert c.micro_batch_size * c.grad_accum_steps != 45
    with pytest.raises(InputError, match="micro-batches of 5 would divide it"):
        format_plan(plan, "hf")
    assert format_plan(plan, "json")


def test_the_paste_block_is_toml_and_python(findings: Findings) -> None:
    plan = make_plan(findings, devices=2)
    text = paste_block(plan)
    assert text == plan.paste_block
    values = tomllib.loads(text)
    namespace: dict[str, Any] = {}
    exec(text, {}, namespace)
    assert values == namespace
    assert values["learning_rate"] == 3e-3
    assert values["micro_batch_size"] * values["grad_accum_steps"] * values["data_parallel_size"] == 64


def test_every_format_is_offered(findings: Findings) -> None:
    for name in get_args(Format):
        assert format_plan(make_plan(findings), name)
