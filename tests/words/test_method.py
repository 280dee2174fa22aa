from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import EnvironmentDifference
from batchlab.core.experiment import AcrossBatch
from batchlab.words.method import method

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


@pytest.mark.parametrize("status", get_args(get_type_hints(Capacity)["status"]))
def test_every_status_of_the_largest_size_is_described(found: Findings, status: Any) -> None:
    assert found.memory is not None
    memory = replace(found.memory, status=status)
    text = dict(method(replace(found, memory=memory)))["memory"]
    described = {
        "predicted": "the largest size is predicted and was not run.",
        "verified": "the largest size ran, and larger ones may fit.",
        "proved": "the largest size ran, and one more sample did not fit.",
        "none": "no size fits.",
    }
    assert text.endswith(described[status])
    assert "no size above 64 was considered" in text


def test_traced_sizes_are_not_called_peaks_of_runs(found: Findings) -> None:
    assert found.memory is not None
    traced = replace(found, memory=replace(found.memory, points=(), status="predicted"))
    assert dict(method(traced))["memory"].startswith("Peaks are predicted from traces")
    assert dict(method(replace(found, memory=None)))["memory"] == "Not probed in this study."


@pytest.mark.parametrize(
    ("pairing", "text"),
    [
        ("verified", "which batchlab verified"),
        ("declared", "was not verified"),
        ("none", "may have seen different samples"),
    ],
)
def test_pairing_says_who_vouches_for_it(found: Findings, pairing: Any, text: str) -> None:
    assert found.surface is not None
    surface = replace(found.surface, pairing=pairing, correlation=0.8249)
    said = dict(method(replace(found, surface=surface)))["pairing"]
    assert text in said
    assert said.endswith("correlate with r = 0.82.")


def test_noise_is_given_with_its_degrees_of_freedom(found: Findings, synthetic_study: Study) -> None:
    surface = found.surface
    assert surface is not None
    said = dict(method(found))["noise"]
    assert f"is {surface.noise_sd:.4f}, pooled over cells with {surface.noise_df} degrees of freedom" in said
    single = assemble(*synthetic_study(seeds=1, max_extensions=0))
    assert dict(method(single))["noise"].startswith("Not measured: n = 1 run per cell.")


def test_the_rule_across_batch_sizes_is_named(found: Findings) -> None:
    def said(**settings: object) -> str:
        optimizer = found.experiment.optimizer.model_copy(update=settings)
        changed = replace(found, experiment=found.experiment.model_copy(update={"optimizer": optimizer}))
        return dict(method(changed))["across batch sizes"]

    assert "the same as at batch 16" in said(across_batch=AcrossBatch.HALF_LIFE)
    assert "Weight decay is scaled" in said(across_batch=AcrossBatch.HALF_LIFE_AND_DECAY)
    assert said(across_batch=AcrossBatch.FIXED).startswith("All optimizer settings but the learning rate are the same")
    assert "within 0.95 to 0.9999" in said(across_batch=AcrossBatch.HALF_LIFE)


def test_a_sweep_of_the_learning_rate_says_what_it_does_to_weight_decay(found: Findings) -> None:
    def said(**settings: Any) -> str:
        optimizer = found.experiment.optimizer.model_copy(update=settings)
        changed = replace(found, experiment=found.experiment.model_copy(update={"optimizer": optimizer}))
        return dict(method(changed))["across batch sizes"]

    assert "also moves the timescale of decay" in said()
    held = said(reference_learning_rate=1e-3)
    assert "Learning rate × weight decay is the same at every learning rate: weight decay is 0.1 at 1.0e-3." in held
    assert "also moves" not in held
    assert "decay" not in said(weight_decay=0.0)
    assert said(name="task").startswith("The task brings its own optimizer.")


def test_conditions_are_said_only_where_they_hold(found: Findings) -> None:
    names = [name for name, _ in method(found)]
    assert "accepted edits" not in names
    assert "sample independence" not in names
    differing = (EnvironmentDifference("framework", ("torch 2.1", "torch 2.2")),)
    mixing = replace(found, sample_independent=False, accepted_edits=("model.py",), environments_differ=differing)
    terms = dict(method(mixing))
    assert "model.py" in terms["accepted edits"]
    assert "samples of a batch influence each other" in terms["sample independence"]
    assert terms["device"] == "Not all records come from one environment: framework: torch 2.1, torch 2.2."


def test_an_edge_of_the_grid_is_named(found: Findings) -> None:
    surface = found.surface
    assert surface is not None
    rows = tuple(replace(row, edge="high" if row.global_batch_size == 64 else "") for row in surface.rows)
    said = dict(method(replace(found, surface=replace(surface, rows=rows))))["best learning rate"]
    assert "At batch 64 the best learning rate is at the edge of the range tried" in said
