from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import EnvironmentDifference
from batchlab.storage.decisions import AcceptedEdit
from batchlab.storage.sealed import Damage, DamagedFile
from batchlab.words.story import tell
from batchlab.words.trust import TrustItem

Study = Callable[..., Any]


def items(findings: Findings) -> dict[str, TrustItem]:
    return {item.label: item for item in tell(findings).trust}


def test_a_sound_study_meets_every_condition(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study())
    assert [item.label for item in tell(findings).trust] == [
        "same tokens",
        "LR tuned per batch",
        "seeds",
        "inside the grid",
        "measured = planned budget",
    ]
    assert all(item.ok for item in tell(findings).trust)


@pytest.mark.parametrize(
    ("settings", "label", "ok"),
    [
        ({"pairing": "none"}, "same tokens", None),
        ({"pairing": "declared"}, "same tokens", None),
        ({"learning_rates": (1e-3,)}, "LR tuned per batch", False),
        ({"learning_rates": (5e-4, 1e-3, 2e-3), "lr_exponent": 0.0, "best_lr": 1e-3}, "LR tuned per batch", None),
        ({"seeds": 1}, "seeds", False),
        ({"sizes": (16,)}, "seeds", None),
        ({"best_lr": 1.0, "max_extensions": 0}, "inside the grid", False),
        ({"learning_rates": (1e-3,)}, "inside the grid", False),
        ({"diverges_above": 1.2}, "inside the grid", None),
        ({"best_batch": 1}, "inside the grid", None),
        ({"diverges_above": 0.0}, "measured = planned budget", None),
    ],
)
def test_each_condition_fails_when_it_should(
    synthetic_study: Study, settings: dict[str, Any], label: str, ok: bool | None
) -> None:
    item = items(assemble(*synthetic_study(**settings)))[label]
    assert item.ok is ok
    assert item.detail


def test_runs_of_another_length_are_noticed(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    spec, record = records[-1]
    short = record.model_copy(update={"result": record.result.model_copy(update={"tokens": 64})})
    findings = assemble(experiment, task_info, [*records[:-1], (spec, short)], rows, decisions)
    assert items(findings)["same tokens"].ok is False
    assert items(findings)["measured = planned budget"].ok is False


def test_other_environments_and_accepted_edits_show(synthetic_study: Study) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    spec, record = records[-1]
    other = record.model_copy(update={"environment": record.environment.model_copy(update={"numpy": "9.9"})})
    edit = AcceptedEdit(path="model.py", digest="0" * 64)
    decisions = decisions.model_copy(update={"accepted_edits": (edit,)})
    findings = assemble(experiment, task_info, [*records[:-1], (spec, other)], rows, decisions)
    assert findings.environments_differ == (EnvironmentDifference("numpy", ("2.0.0", "9.9")),)
    assert items(findings)["one environment"].ok is False
    assert "model.py" in items(findings)["unchanged code"].detail


@pytest.mark.parametrize(("field", "differs"), [("driver", True), ("max_clock_mhz", True), ("card_uuid", False)])
def test_unlike_cards_show_and_equal_ones_of_one_machine_do_not(
    synthetic_study: Study, field: str, differs: bool
) -> None:
    experiment, task_info, records, rows, decisions = synthetic_study()
    spec, record = records[-1]
    other = record.model_copy(update={"environment": record.environment.model_copy(update={field: 1410})})
    findings = assemble(experiment, task_info, [*records[:-1], (spec, other)], rows, decisions)
    assert bool(findings.environments_differ) is differs


def test_runs_that_are_left_out_are_counted_and_listed(synthetic_study: Study) -> None:
    run = Path("/study/runs/train-b4")
    damaged = [DamagedFile(run / "record.json", Damage.SET_ASIDE), DamagedFile(run / "spec.json", Damage.MISSING)]
    damaged.append(DamagedFile(Path("/study/decisions.json"), Damage.MISSING))
    findings = assemble(*synthetic_study(), damaged=damaged)
    assert items(findings)["every run used"].detail.startswith("1 run is left out")
    listed = [failure for failure in tell(findings).failures if failure.where == "the study's files"]
    assert [failure.what.split()[0] for failure in listed] == [
        "runs/train-b4/record.json",
        "runs/train-b4/spec.json",
        "decisions.json",
    ]
