"""The cost that a study states before it starts."""

from __future__ import annotations

import pytest

from batchlab.core.experiment import build_experiment
from batchlab.core.record import TaskInfo
from batchlab.search.cost import cost_of
from batchlab.study.task_source import resolve_task


def task_info(family="adam", parameters=22_696_448):
    return TaskInfo(
        unit="tokens",
        sequence_length=256,
        train_samples=1_000_000,
        valid_samples=1000,
        parameter_count=parameters,
        optimizer_family=family,
        data_source="text",
        data_digest="d",
        device="cpu",
    )


def test_the_published_sweep():
    """Seven sizes at one rate and two more seeds at two of them, 6·N·D each; four float32 numbers per parameter."""
    cost = cost_of(build_experiment(resolve_task("tinystories")), task_info())
    assert (cost.runs, cost.tokens) == (11, 327_680_000)
    assert cost.flops == pytest.approx(6 * 22_696_448 * 327_680_000 * 11.5)
    assert cost.half_budget  # one more run of half the tokens tells what a higher loss costs
    assert cost.state_bytes == 16 * 22_696_448


@pytest.mark.parametrize(("momentum", "copies"), [(0.9, 3), (0.0, 2)])
def test_sgd_keeps_less(momentum, copies):
    values = resolve_task("tinystories")
    values["optimizer"] |= {"name": "sgd", "momentum": momentum}
    assert cost_of(build_experiment(values), task_info("sgd")).state_bytes == 4 * copies * 22_696_448


def test_without_a_token_budget_only_runs_and_memory_are_known():
    values = resolve_task("quickstart")
    values["budget"] = {"time_budget_seconds": 60.0, "max_runs": 5}
    values["sweep"] |= {"seeds": 3, "confirm": 0}
    cost = cost_of(build_experiment(values), task_info(parameters=2**28))
    assert cost.flops is None
    assert cost.tokens is None
    assert (cost.runs, cost.state_bytes) == (5 + 4, 2**32)
