from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from batchlab.analysis.findings import Findings
from batchlab.plan import TrainingPlan, format_plan, make_plan, paste_block

Study = Callable[..., Any]


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
