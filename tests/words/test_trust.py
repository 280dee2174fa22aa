from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.storage.decisions import AcceptedEdit
from batchlab.words.story import tell
from batchlab.words.trust import TrustItem, unknown

Study = Callable[..., Any]


def items(findings: Findings) -> dict[str, TrustItem]:
    return {item.label: item for item in tell(findings).trust}


def answer(findings: Findings, start: str) -> Any:
    (one,) = [a for a in tell(findings).answers if a.question.startswith(start)]
    return one


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
    assert answer(findings, "Can I trust").answer == "5 of 5 conditions hold"


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
    assert findings.environments_differ == ("numpy: 2.0.0, 9.9",)
    assert items(findings)["one environment"].ok is False
    assert "model.py" in items(findings)["unchanged code"].detail


def test_every_question_of_the_design_is_answered_or_said_to_be_open(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study())
    assert [a.question for a in tell(findings).answers] == [
        "How large a micro-batch fits?",
        "How large on a card I don't have?",
        "What is the fastest batch?",
        "Which batch and LR give the best loss for this budget?",
        "How far can I scale before I waste tokens?",
        "So what do I train with?",
        "Can I trust this study?",
    ]
    assert answer(findings, "How large a micro").answer == "48 (proved: 49 ran out of memory)"
    assert answer(findings, "How far").answer == "not measured in this study"
    assert answer(findings, "How large on a card").answer == "not measured in this study"
    assert "batch 16 at LR 1.0e-3" in answer(findings, "Which batch").answer
    assert "n = 3 seeds" in answer(findings, "Which batch").doubt
    assert answer(findings, "So what").answer.endswith("LR 3.0e-3")


def test_without_runs_every_answer_says_so(synthetic_study: Study) -> None:
    experiment, task_info, _, rows, decisions = synthetic_study()
    findings = assemble(experiment, task_info, [], rows, decisions, partial=True, planned_runs=24)
    assert findings.runs == ()
    assert findings.recommended is None
    assert {a.answer for a in tell(findings).answers if a.question.startswith(("How", "What"))} == {
        "not measured in this study"
    }
    assert answer(findings, "Which").answer == "cannot tell"
    assert tell(findings).unknown[0] == "the study is not finished: 0 of 24 runs so far"


@pytest.mark.parametrize(
    ("settings", "phrase"),
    [
        ({"seeds": 1}, "whether any difference is more than noise (n = 1)"),
        ({"learning_rates": (1e-3,)}, "the best learning rate of batch 4, 8, 16, 32 and 64 (one was tried)"),
        ({"out_of_memory": (64,)}, "batch 64: no finite loss"),
        ({"token_budget": 64 * 64 * 20}, "batch 32 and 64: too few steps at this budget to be judged"),
        ({}, "budgets beyond 410k tokens"),
        ({}, "the critical batch size"),
        ({}, "49 and more samples at once: only by accumulation"),
        ({"max_micro_batch_size": 64}, "whether micro-batches above 64 fit"),
    ],
)
def test_what_is_not_answered_is_listed(synthetic_study: Study, settings: dict[str, Any], phrase: str) -> None:
    assert phrase in unknown(assemble(*synthetic_study(**settings)))
