"""Findings of studies in every state a report may meet them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.dynamics.diagnostics import diagnostics_finding
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import EnvironmentDifference
from batchlab.core.check import CheckItem, OverlapFinding, RaisedError, StartLoss
from batchlab.core.record import Environment, MetricRow
from batchlab.words.answers import Answers
from batchlab.words.failures import Failure
from batchlab.words.story import Story, tell

STATES: dict[str, dict[str, Any]] = {
    "whole": {},
    "partial": {"keep": 9},
    "nothing trained": {"keep": 0},
    "samples": {"unit": "samples", "token_budget": 64 * 200},
    "one size": {"sizes": (16,), "seeds": 1, "max_extensions": 0},
    "one seed": {"seeds": 1, "max_extensions": 0},
    "failures": {"out_of_memory": (32, 64), "max_micro_batch_size": 16, "failed": (4,), "diverges_above": 3.0},
    "all diverged": {"diverges_above": 1e-9},
    "undertrained": {"token_budget": 64 * 64 * 20},
    "no capacity": {},
    "no speed": {},
    "snapshots": {"diverges_above": 6.0},
    "ten sizes": {
        "sizes": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        "token_budget": 512 * 64 * 60,
        "learning_rates": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    },
}
_LEFT_OUT = {"no capacity": "capacity", "no speed": "throughput"}
_CHECKS = (
    CheckItem(name="loss", status="ok", finding=StartLoss(found="finite", loss=5.5, vocabulary=256)),
    CheckItem(name="leak", status="note", finding=OverlapFinding(found="some", share=3 / 256)),
    CheckItem(name="learning rate", status="fail", finding=RaisedError(message="KeyError: 'lr' (line 3 of mine.py)")),
)

HOSTILE = (
    "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> | `a` [b](javascript:c) _d_ \"e\" 'f' &amp;"
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `state` runs once for each of the STATES."""
    if "state" in metafunc.fixturenames:
        metafunc.parametrize("state", STATES)


@pytest.fixture(scope="session")
def attack() -> str:
    """What every free text says in the `hostile` findings."""
    return HOSTILE


@pytest.fixture(scope="session")
def plan() -> type[Plan]:
    """`plan()` or `plan("block")`: a plan with that paste-ready block."""
    return Plan


@dataclass(frozen=True)
class Plan:
    """What a report needs of a plan."""

    paste_block: str = "learning_rate = 0.003\nmicro_batch_size = 32"


@pytest.fixture(scope="session")
def study(synthetic_study: Callable[..., Any]) -> Callable[[str], Findings]:
    """`study("partial")`: the findings of a study in one of the STATES, each computed once."""
    made: dict[str, Findings] = {}

    def build(state: str) -> Findings:
        if state not in made:
            experiment, task_info, records, rows, decisions = synthetic_study(**STATES[state])
            if state in _LEFT_OUT:
                records = [(spec, record) for spec, record in records if spec.kind != _LEFT_OUT[state]]
            given = with_snapshots(rows) if state == "snapshots" else rows
            partial = "keep" in STATES[state]
            made[state] = assemble(
                experiment, task_info, records, given, decisions, _CHECKS, 31 if partial else None, partial
            )
        return made[state]

    return build


def with_snapshots(
    rows: Callable[[str], list[MetricRow]], layers: Sequence[str] = ("blocks.0", "blocks.1", "blocks.2")
) -> Callable[[str], list[MetricRow]]:
    """The same rows with a full diagnostic snapshot at each evaluation, and one spike; diverged runs break."""

    def read(row: MetricRow) -> dict[str, float]:
        share = row.tokens / 1e6
        whole = {"loss/all": row.val_loss or 3.0, "grad_norm/all": 1 / (1 + share), "effective_step/all": 0.3 + share}
        seconds = {f"seconds/{phase}": 1e-6 * row.tokens / row.step for phase in ("data", "forward", "backward")}
        readings = {
            **whole,
            "update_ratio/all": 1e-3,
            **seconds,
            "seconds/optimizer": 1e-4,
            "norm_layer_grad/weight": 0.1,
        }
        for number, layer in enumerate(layers):
            readings |= {f"{name}/{layer}": 0.1 + number + share for name in ("grad_norm", "update_ratio")}
            readings |= {f"activation_rms/{layer}": 1.0 + number, f"attention_entropy/{layer}": 2.0 - share}
            readings |= {f"attention_entropy_lowest/{layer}": 1.0, f"attention_entropy_uniform/{layer}": 3.0}
            readings |= {f"attention_entropy/{layer}/head{head}": 2.0 - head - share for head in range(2)}
        return readings

    def read_with_snapshots(identity: str) -> list[MetricRow]:
        found = rows(identity)
        evaluations = [row for row in found if row.val_loss is not None]
        if not evaluations:
            broken = {f"non_finite/grad_norm/{layers[0]}": 1.0}
            return [*found, MetricRow(step=found[-1].step, tokens=found[-1].tokens, diagnostics=broken)]
        snapshots = [MetricRow(step=row.step, tokens=row.tokens, diagnostics=read(row)) for row in evaluations]
        training = [row for row in found if row.train_loss is not None]
        spiked = training[20].model_copy(update={"train_loss_max": (training[20].train_loss or 0.0) + 3.0})
        return [*(spiked if row is training[20] else row for row in found), *snapshots]

    return read_with_snapshots


@pytest.fixture(scope="session")
def hostile(study: Callable[[str], Findings], synthetic_study: Callable[..., Any]) -> Findings:
    """A study in which everything that a person or an error message can write is an attack."""
    found = study("failures")
    assert found.memory is not None

    def spoil(row: Any) -> Any:
        cells = tuple(
            replace(cell, runs=tuple(replace(run, reason=HOSTILE) for run in cell.runs)) for cell in row.cells
        )
        return replace(row, cells=cells)

    task = found.experiment.task.model_copy(update={"kind": "file", "target": f"/home/secret/{HOSTILE}.py"})
    experiment, _, records, rows, _ = synthetic_study(**STATES["failures"])
    spoilt = with_snapshots(rows, [f"{HOSTILE}.{i}" for i in range(3)])
    attacked = assemble(experiment, found.task_info, records, spoilt)
    runs, judged = attacked.runs, attacked.surface
    assert judged is not None
    surface = replace(judged, rows=tuple(replace(row, tokens_per_second=9.0, hours=1.0) for row in judged.rows))
    return replace(
        found,
        runs=runs,
        diagnostics=diagnostics_finding(runs, surface),
        experiment=found.experiment.model_copy(update={"task": task, "model": {HOSTILE: HOSTILE}}),
        task_info=found.task_info.model_copy(update={"data_source": HOSTILE}),
        environment=Environment(
            batchlab="0", python="3", numpy="2", platform=HOSTILE, processor=HOSTILE, device=HOSTILE, framework=HOSTILE
        ),
        checks=(CheckItem(name=HOSTILE, status="fail", finding=RaisedError(message=HOSTILE)),),
        memory=replace(
            found.memory,
            points=tuple(replace(point, reason=HOSTILE) for point in found.memory.points),
        ),
        surface=replace(surface, rows=tuple(spoil(row) for row in surface.rows)),
        accepted_edits=(HOSTILE,),
        environments_differ=(EnvironmentDifference(HOSTILE, (HOSTILE,)),),
    )


@pytest.fixture(scope="session")
def hostile_story(hostile: Findings) -> Story:
    """The story of the hostile study, every text of it an attack too."""
    told = tell(hostile)
    return Story(
        trust=tuple(replace(item, label=HOSTILE, detail=HOSTILE) for item in told.trust),
        answers=Answers(
            *(replace(answer, answer=HOSTILE, caveat=HOSTILE, evidence=HOSTILE) for answer in told.answers)
        ),
        unknown=(HOSTILE,),
        failures=(Failure(what=HOSTILE, where=HOSTILE, remedy=HOSTILE),),
        conclusions=(HOSTILE,),
    )
