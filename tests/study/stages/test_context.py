"""What follows for one run from a study's capacity and settings."""

from __future__ import annotations

from typing import Any

import pytest

from batchlab.analysis.capacity.capacity import Capacity, MemoryPoint
from batchlab.core.experiment import build_experiment
from batchlab.engines.resources import Concurrency
from batchlab.search.budget import SweepDesign, fixed_budget
from batchlab.study.stages.capacity import LARGEST_EVALUATION_BATCH
from batchlab.study.stages.context import SweepContext


def context(largest: int | None = 20, sample_independent: bool = True, **sections: Any) -> SweepContext:
    points = (MemoryPoint(largest, True, 90),) if largest else ()
    return SweepContext(
        experiment=build_experiment(
            {"name": "x", "task": {"kind": "recipe", "target": "simulated"}, "sequence_length": 4, **sections}
        ),
        capacity=Capacity(
            points=points,
            max_micro_batch_size=largest,
            status="verified" if largest else "none",
            searched_up_to=64,
            smallest_failed=None if largest is None else largest + 1,
            limit_bytes=100,
        ),
        concurrency=Concurrency(2, 1),
        budget=fixed_budget(6400, SweepDesign(sizes=(4, 8), tokens_per_second={4: 1.0, 8: 1.0})),
        sample_independent=sample_independent,
    )


@pytest.mark.parametrize(
    ("given", "micro_batch_size"),
    [
        ({}, 16),
        ({"largest": 64}, 64),
        ({"largest": None}, 1),
        ({"batch": {"micro_batch_size": 8}}, 8),
        ({"batch": {"micro_batching": "off"}}, 64),
        ({"sample_independent": False}, 64),
    ],
)
def test_a_batch_is_split_where_it_must_and_may_be(given: dict[str, Any], micro_batch_size: int) -> None:
    layout = context(**given).layout(64)
    assert (layout.global_batch_size, layout.micro_batch_size) == (64, micro_batch_size)
    assert layout.sequence_length == 4


def test_only_an_unsplit_batch_beyond_the_limit_is_known_to_run_out_of_memory() -> None:
    split, whole = context(), context(batch={"micro_batching": "off"})
    assert not split.known_oom(split.layout(64))
    assert whole.known_oom(whole.layout(64))
    assert not whole.known_oom(whole.layout(16))


def test_evaluation_never_needs_more_than_training() -> None:
    assert context().evaluation_batch_size == 20
    assert context(largest=None).evaluation_batch_size == 1
    assert context(largest=4096).evaluation_batch_size == LARGEST_EVALUATION_BATCH


@pytest.mark.parametrize(
    ("given", "size", "parameters", "split_lone"),
    [
        ({}, 16, "all", True),
        ({}, 64, "all", True),
        ({"noise": {"parameters": "norm_layers"}}, 16, "norm_layers", True),
        ({"batch": {"micro_batching": "off"}}, 16, "norm_layers", False),
        ({"device": {"compile": "default"}}, 16, "all", False),
        ({"sample_independent": False}, 16, "all", False),
        ({"sample_independent": False, "noise": {"parameters": "norm_layers"}}, 16, "all", False),
    ],
)
def test_how_gradients_are_sampled(given: dict[str, Any], size: int, parameters: str, split_lone: bool) -> None:
    one = context(**given)
    sampling = one.gradient_sampling(one.layout(size), steps=1000)
    assert sampling is not None
    assert (sampling.parameters, sampling.split_lone) == (parameters, split_lone)
    assert sampling.every >= 15


def test_no_points_are_no_sampling() -> None:
    one = context(noise={"points": 0})
    assert one.gradient_sampling(one.layout(16), steps=1000) is None
