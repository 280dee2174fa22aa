from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.core.record import PhasePeak, TracePoint
from batchlab.words.story import tell

Study = Callable[..., Any]


def answer(findings: Findings, start: str) -> Any:
    (one,) = [a for a in tell(findings).answers if a.question.startswith(start)]
    return one


def test_every_question_is_answered_or_said_to_be_open(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study())
    assert [a.question for a in tell(findings).answers] == [
        "How large a micro-batch fits?",
        "How large on a card I don't have?",
        "What is the fastest batch size?",
        "Which batch size and learning rate give the lowest loss?",
        "How far can I scale before I waste tokens?",
    ]
    assert answer(findings, "How large a micro").answer == "48 (proved: 49 ran out of memory)"
    assert answer(findings, "How far").answer == "not measured in this study"
    assert answer(findings, "How large on a card").answer == "not measured in this study"
    assert "batch 16 at LR 1.0e-3" in answer(findings, "Which batch").answer
    assert "n = 3 seeds" in answer(findings, "Which batch").caveat


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


SIZES = (1, 200)
"""Traced: the sizes of all common cards lie between them."""


def traced(findings: Findings) -> Findings:
    """The same study with a trace of two sizes: 1 GiB of parameters, 1 GiB of activations per sample."""
    assert findings.memory is not None
    phases = [
        PhasePeak(
            phase="backward",
            parameter_bytes=2**30,
            gradient_bytes=0,
            optimizer_bytes=0,
            activation_bytes=size * 2**30,
            temporary_bytes=0,
        )
        for size in SIZES
    ]
    points = tuple(TracePoint(micro_batch_size=n, phases=(phase,)) for n, phase in zip(SIZES, phases, strict=True))
    return replace(findings, memory=replace(findings.memory, traced=points))


def test_predictions_for_other_cards_are_the_answer_where_there_are_any(synthetic_study: Study) -> None:
    findings = traced(assemble(*synthetic_study()))
    assert findings.memory is not None
    said = answer(findings, "How large on a card")
    assert findings.memory.cards
    for gib, size in findings.memory.cards:
        assert f"{gib} GiB: {size:,}" in said.answer
    assert "predicted with 5 % left free" in said.caveat
    assert "traced at 2 sizes" in said.evidence
    assert "memory on another device, which is predicted only" in tell(findings).unknown


def test_a_size_that_was_not_traced_is_not_predicted(synthetic_study: Study) -> None:
    findings = assemble(*synthetic_study())
    assert answer(findings, "How large on a card").answer == "not measured in this study"
    assert "memory on another device" in tell(findings).unknown
