"""A probe samples gradients as the training runs after it will, at a step that is not timed."""

from __future__ import annotations

from typing import Any

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.study.stages.gradient_sampling import probed_sampling


def experiment(**sections: Any) -> Experiment:
    return build_experiment({"name": "x", "task": {"kind": "recipe", "target": "simulated"}, **sections})


@pytest.mark.parametrize(
    ("given", "accumulation", "independent", "parameters"),
    [
        ({}, 2, True, "all"),
        ({"noise": {"parameters": "norm_layers"}}, 2, True, "all"),
        ({"batch": {"micro_batching": "off"}}, 1, True, "norm_layers"),
        ({}, 1, False, "all"),
    ],
)
def test_the_step_before_the_last_measures_what_needs_most(
    given: dict[str, Any], accumulation: int, independent: bool, parameters: str
) -> None:
    layout = BatchLayout(global_batch_size=8 * accumulation, micro_batch_size=8)
    sampling = probed_sampling(experiment(**given), layout, 3, sample_independent=independent)
    assert sampling is not None
    assert (sampling.every, sampling.parameters) == (2, parameters)


def test_without_sampled_steps_there_are_none_in_a_probe() -> None:
    layout = BatchLayout(global_batch_size=8, micro_batch_size=8)
    assert probed_sampling(experiment(noise={"points": 0}), layout, 3, sample_independent=True) is None
