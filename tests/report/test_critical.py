"""The section on the critical batch size, from a study whose runs are formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.critical.finding import CriticalFinding, beyond
from batchlab.analysis.critical.steps_finding import CriticalBatch, Definition
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Interval
from batchlab.core.record import GradientSample, MetricRow
from batchlab.plan import make_plan
from batchlab.report.critical import critical_lines, critical_section
from batchlab.report.figures.build import build_figures
from batchlab.words.critical import answer_lines, disagreement, headline
from batchlab.words.figures.critical import NO_TARGET
from batchlab.words.story import tell

NOISE = 8.0


def sampled(noise: float, batch: float, steps: int, seed: int) -> list[MetricRow]:
    """Rows of a run whose gradient is (1, 0, 0, 0) and whose noise scale is `noise`."""
    random, rows = np.random.default_rng(seed), []
    gradient, sd = np.array([1.0, 0, 0, 0]), math.sqrt(noise / 4)
    for step in range(steps):
        parts = [gradient + sd / math.sqrt(batch / 2) * random.standard_normal(4) for _ in range(2)]
        mean = (parts[0] + parts[1]) / 2
        sample = GradientSample(
            micro_batch_sizes=(batch / 2, batch / 2),
            squared_norms=tuple(float(p @ p) for p in parts),
            mean_squared_norm=float(mean @ mean),
        )
        rows.append(MetricRow(step=step + 1, tokens=(step + 1) * 1000, gradients=sample))
    return rows


@pytest.fixture(scope="module")
def found(synthetic_study: Callable[..., Any]) -> Findings:
    experiment, task_info, records, rows, decisions = synthetic_study()
    by_run = {
        record.run_id: sampled(NOISE, spec.layout.global_batch_size, 192, spec.seed)
        for spec, record in records
        if spec.kind == "train"
    }
    return assemble(experiment, task_info, records, lambda run: [*rows(run), *by_run[run]], decisions)


def critical(found: Findings) -> CriticalFinding:
    assert found.critical is not None
    return found.critical


def test_the_noise_scale_is_told_with_its_interval_and_its_number_of_steps(found: Findings) -> None:
    for series in critical(found).noise:
        value = series.whole.value
        assert value is not None
        assert (value.low or 0) <= NOISE <= (value.high or 0)
        assert series.whole.steps == 192
        assert len(series.windows) == 6
    name, answer, doubt = answer_lines(found)[-1]
    assert (name, "From 192 sampled steps." in doubt) == ("noise scale", True)
    assert "at its beginning" in answer
    assert headline(found) == ""  # it is no critical batch size
    assert not any("noise scale" in answer.answer for answer in tell(found).answers)


def test_one_sweep_leaves_steps_and_branches_open_and_names_the_command(found: Findings) -> None:
    said = " ".join(" ".join(critical_lines(found)).split())  # wherever lines break
    assert said.count("batchlab critical --run") >= 2
    assert "Fewer than two of the three" in said
    section = critical_section(found)
    assert len(section.estimators.rows) == 3
    assert not section.costs.rows


def test_figures_draw_windows_and_say_what_is_missing(found: Findings) -> None:
    figures = build_figures(found)
    assert figures["noise-scale"].drawable
    assert figures["cost-to-target"].missing == NO_TARGET


def test_the_plan_warns_beyond_the_critical_size(found: Findings) -> None:
    assert not make_plan(found).warnings  # the noise scale alone is no reason
    overhead = CriticalBatch(Definition.OVERHEAD_20, Interval(2.0, 1.5, 2.5, 6), base_batch=1.0)
    steps = replace(critical(found).steps, overhead=overhead)
    known = replace(found, critical=replace(critical(found), steps=steps))
    assert "B_crit (20 % overhead)" in make_plan(known).warnings[0]
    assert beyond(known.critical, 2) == ()
    assert beyond(known.critical, 3) == (overhead,)
    assert beyond(None, 10) == ()


def test_numbers_that_differ_are_explained_and_not_averaged(found: Findings) -> None:
    steps = replace(critical(found).steps, twice_samples=None)
    far = replace(found, critical=replace(critical(found), steps=steps))
    assert "Fewer than two" in disagreement(far)[0]
    apart = replace(steps, twice_samples=CriticalBatch(Definition.TWICE_SAMPLES, Interval(4000.0, 3000.0, 5000.0, 6)))
    said = disagreement(replace(found, critical=replace(critical(found), steps=apart)))
    assert "below B_crit (2× samples)" in said[0]
