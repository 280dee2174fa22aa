from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.words.notes import design, frozen_variables

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


def test_frozen_variables_are_what_no_run_varies(synthetic_study: Study) -> None:
    names = {name for name, _ in frozen_variables(assemble(*synthetic_study()))}
    assert {"model", "data", "optimizer", "schedule"} <= names
    assert not {"batch sizes", "learning rates", "seeds", "budget", "device"} & names
