from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.words.notes import Revision, describe_revision, design, frozen_variables, metrics

Study = Callable[..., Any]
BUDGET = {
    "token_budget": 65536,
    "runs_planned": 12,
    "runs_at_most": 20,
    "seconds_planned": 7200.0,
    "undertrained": [64],
}


def test_the_design_gives_runs_steps_and_time(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    assert design(found, BUDGET) == (
        f"12 training runs planned, 20 at most: {found.experiment.sweep.search} search over batch × LR, then seeds",
        "65,536 tokens per run, so batch 64 gets 16 steps and batch 4 gets 256",
        "2 h of training at measured speed",
        "the same sequences in the same order for every size; compared at equal tokens",
        "undertrained (too few steps to compare): batch 64",
    )
    unmeasured = design(found, BUDGET | {"seconds_planned": None, "undertrained": []})
    assert unmeasured[2] == "training time unknown: speed was not measured before"
    assert len(unmeasured) == 4


def test_the_commit_is_named_or_said_to_be_unknown() -> None:
    assert describe_revision(None) == "not in a git repository"
    assert describe_revision(Revision("2bacec8f01")) == "2bacec8f01"
    assert describe_revision(Revision("2bacec8f01", "main", changed=True)) == (
        "2bacec8f01 (main), with uncommitted changes"
    )


def test_metrics_inside_the_model_are_listed_where_they_are_recorded(synthetic_study: Study) -> None:
    light = assemble(*synthetic_study())
    full = replace(light, experiment=light.experiment.model_copy(update={"diagnostics": "full"}))
    assert [name for name, _ in metrics(light)] == ["core", "stability"]
    assert "attention entropy" in dict(metrics(full))["diagnostics"]


def test_frozen_variables_are_what_no_run_varies(synthetic_study: Study) -> None:
    names = {name for name, _ in frozen_variables(assemble(*synthetic_study()))}
    assert {"model", "data", "optimizer", "schedule"} <= names
    assert not {"batch sizes", "learning rates", "seeds", "budget", "device"} & names
