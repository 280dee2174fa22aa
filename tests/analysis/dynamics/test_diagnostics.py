"""What the rows of runs say about how they trained."""

from __future__ import annotations

import math
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.dynamics.course import course_of
from batchlab.analysis.dynamics.diagnostics import diagnostics_finding, loss_before, step_events
from batchlab.analysis.values import Run
from batchlab.core.batch import lay_out
from batchlab.core.record import MetricRow, Outcome
from batchlab.storage.metrics import values_of


def run(rows: list[MetricRow], batch: int = 8, **more: Any) -> Run:
    given: dict[str, Any] = {
        "run_id": f"run-{batch}",
        "layout": lay_out(batch, batch, sequence_length=10),
        "learning_rate": 1e-3,
        "seed": 0,
        "outcome": Outcome.COMPLETED,
        "reason": "",
        "steps": rows[-1].step,
        "tokens": rows[-1].tokens,
        "undertrained": False,
        "val_loss": 2.0,
        "train_loss": 2.0,
        "clipped_fraction": 0.0,
        "epochs": 0.5,
        "seconds": 1.0,
        "tokens_per_second": 1.0,
        "peak_bytes": None,
        "pairing": "none",
        "rows": tuple(rows),
        "course": course_of(f"run-{batch}", [values_of(row) for row in rows]),
    }
    return Run(**{**given, **more})


def falling(batch: int, tokens: int = 16_000, spike_at: int | None = None) -> list[MetricRow]:
    """Loss 100 000 / tokens, one row a step."""
    per_step = batch * 10
    steps = range(1, tokens // per_step + 1)
    return [
        MetricRow(
            step=step,
            tokens=step * per_step,
            train_loss=1e5 / (step * per_step),
            train_loss_max=1e5 / (step * per_step) + (2e3 if step == spike_at else 0.0),
        )
        for step in steps
    ]


def test_a_spike_hidden_in_the_mean_of_a_row_is_found_by_its_highest_step():
    (spike,) = run(falling(8, spike_at=50)).course.spikes
    assert (spike.step, spike.tokens, spike.rows) == (50, 4000, 1)
    assert spike.height == pytest.approx(2000, rel=0.01)
    assert not run(falling(8)).course.spikes


def test_events_are_the_first_broken_reading_and_divergence():
    rows = [
        MetricRow(step=3, tokens=240, diagnostics={"grad_norm/all": 1.0}),
        MetricRow(step=6, tokens=480, diagnostics={"non_finite/grad_norm/head": 1.0, "loss/all": 2.0}),
        MetricRow(step=9, tokens=720, diagnostics={"non_finite/loss/all": 1.0}),
    ]
    events = step_events(run(rows, outcome=Outcome.DIVERGED, steps=10, tokens=800))
    assert [(e.what, e.step, e.names) for e in events] == [("not finite", 6, ("grad_norm/head",)), ("diverged", 10, ())]
    rows.append(MetricRow(step=5, tokens=400, train_loss=math.nan, grad_norm=math.inf))  # its row was due later
    assert step_events(run(rows))[0].step == 5
    assert step_events(run(rows))[0].names == ("train_loss", "grad_norm")


def test_looks_and_parts_are_gathered_over_runs_in_the_models_order():
    rows = [
        MetricRow(step=2, tokens=160, diagnostics={"grad_norm/blocks.0": 1.0, "grad_norm/blocks.1": 1.0}),
        MetricRow(step=4, tokens=320, diagnostics={"grad_norm/blocks.0": 1.0, "loss/all": 3.0, "non_finite/x/y": 1.0}),
    ]
    found = diagnostics_finding([run(rows), run(falling(4), batch=4)], None)
    assert found.snapshots == (160, 320)
    assert found.parts == {"grad_norm": ("blocks.0", "blocks.1"), "loss": ("all",)}
    assert found.judged_runs == 1


def test_the_loss_before_a_point_is_the_mean_of_the_last_tenth_of_the_way():
    rows = falling(1, 1000)
    expected = [row.train_loss for row in rows if row.train_loss is not None and 450 < row.tokens <= 500]
    assert loss_before(run(rows, batch=1), 500) == pytest.approx(sum(expected) / len(expected))
    assert loss_before(run(rows, batch=1), 5) is None


def test_batch_sizes_are_compared_at_the_furthest_tokens_steps_and_hours_of_all(synthetic_study):
    found = assemble(*synthetic_study())
    throughput, budget = found.throughput, found.token_budget or 0
    tokens, steps, hours = found.diagnostics.comparisons
    assert (tokens.axis, tokens.at) == ("tokens", budget)
    assert (steps.axis, steps.at) == ("steps", budget // (64 * 64))
    assert throughput is not None
    fastest = max(point.tokens_per_second.value for point in throughput.points)
    assert hours.axis == "hours"
    assert hours.at == pytest.approx(budget / fastest / 3600)
    assert [size for size, _ in steps.losses] == [4, 8, 16, 32, 64]
    small, large = dict(steps.losses)[8], dict(steps.losses)[64]
    assert large is not None
    assert small is None or small > large


def test_without_runs_there_is_nothing():
    found = diagnostics_finding([], None)
    assert (found.snapshots, found.parts, found.spikes, found.comparisons) == ((), {}, (), ())
