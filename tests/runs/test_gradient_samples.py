"""Which steps are sampled, what a sampled step changes (nothing), and what its row says."""

from __future__ import annotations

import io
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchlab.analysis.critical.noise_scale import GradientNorms, unbiased_parts
from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.protocols import Interrupted, WriteState
from batchlab.core.record import GradientSample, MetricRow, NoGradientSamples
from batchlab.core.spec import DeviceSettings, GradientSampling, OptimizerSettings, TrainSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.gradient_samples import SPARSEST, GradientSampler, steps_between
from batchlab.runs.step import one_step
from batchlab.runs.train import train
from batchlab.simulated.machine import Simulation
from batchlab.simulated.problem import NoisyQuadratic, held_out_data, training_data
from batchlab.simulated.trainable import SimulatedTrainable

PROBLEM = NoisyQuadratic(samples=512, dimensions=8)
PLAIN = OptimizerSettings(config=OptimizerConfig(name="sgd", momentum=0.0, weight_decay=0.0, grad_clip=None))


class Notebook:
    """A RunContext in memory."""

    cache_dir = Path()
    path = Path()
    repaired_lines = 0

    def __init__(self, stop_at: int | None = None, saved: Any = None) -> None:
        self.rows: list[MetricRow] = []
        self.stop_at, self.saved, self.calls = stop_at, saved, 0

    def row(self, row: MetricRow) -> None:
        self.rows.append(row)

    def progress(self, *_: object) -> None:
        pass

    def save_checkpoint(self, header: Any, write_state: WriteState) -> None:
        state = io.BytesIO()
        write_state(state)
        self.saved = dict(header), state.getvalue()

    def load_checkpoint(self) -> Any:
        return None if self.saved is None else (self.saved[0], io.BytesIO(self.saved[1]))

    def keep_end(self, header: Any, write_state: WriteState) -> None: ...

    def end_of(self, run_id: str) -> None: ...

    def stop_requested(self) -> bool:
        self.calls += 1
        return self.calls == self.stop_at

    @property
    def samples(self) -> list[MetricRow]:
        return [row for row in self.rows if row.gradients is not None]


def spec(batch: int, micro: int, sampling: GradientSampling | None, steps: int = 64) -> TrainSpec:
    return TrainSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="simulated")),
        layout=BatchLayout(global_batch_size=batch, micro_batch_size=micro),
        learning_rate=0.1,
        token_budget=batch * steps,
        evaluation_interval=batch * steps,
        evaluation_samples=8,
        checkpoint_seconds=1e9,
        gradients=sampling,
    )


def run(asked: TrainSpec, notebook: Notebook | None = None, trainable: Any = None) -> tuple[Any, Notebook]:
    notebook = notebook or Notebook()
    trainable = trainable or SimulatedTrainable(Simulation(PROBLEM), DeviceSettings(name="simulated"), PLAIN)
    stream = SampleStream(training_data(PROBLEM), asked.seed)
    return train(trainable, stream, held_out_data(PROBLEM, 8), asked, notebook), notebook


def test_never_too_often_and_about_as_often_as_asked() -> None:
    layout = BatchLayout(global_batch_size=8, micro_batch_size=8)
    assert steps_between(64, 64, layout) == SPARSEST
    assert steps_between(6400, 64, layout) == 100
    assert steps_between(6401, 64, layout) == 101
    cut = BatchLayout(global_batch_size=4, micro_batch_size=4)
    assert steps_between(64, 64, cut) == 2 * SPARSEST
    assert steps_between(64, 64, BatchLayout(global_batch_size=4, micro_batch_size=2)) == SPARSEST


def test_sampling_several_micro_batches_changes_no_bit_of_the_run() -> None:
    plain, without = run(spec(16, 4, None))
    sampled, rows = run(spec(16, 4, GradientSampling(every=4)))
    assert sampled.result == plain.result
    assert [row for row in rows.rows if row.gradients is None] == without.rows
    assert [row.step for row in rows.samples] == list(range(4, 65, 4))


def test_a_lone_micro_batch_is_cut_in_two_and_only_rounding_changes() -> None:
    plain, _ = run(spec(15, 15, None))
    sampled, notebook = run(spec(15, 15, GradientSampling(every=8, split_lone=True)))
    assert sampled.result.val_loss == pytest.approx(plain.result.val_loss, rel=1e-12)
    sizes = {row.gradients.micro_batch_sizes for row in notebook.samples if row.gradients}
    assert len(sizes) == 1
    assert sizes.pop() == pytest.approx((8, 7))


@pytest.mark.parametrize(
    ("batch", "split", "why"),
    [(1, True, NoGradientSamples.ONE_SAMPLE), (8, False, NoGradientSamples.ONE_MICRO_BATCH)],
)
def test_one_micro_batch_that_stays_whole_is_no_sample_and_the_record_says_why(
    batch: int, split: bool, why: NoGradientSamples
) -> None:
    ended, notebook = run(spec(batch, batch, GradientSampling(every=4, split_lone=split)))
    assert not notebook.samples
    assert ended.result.no_gradient_samples == (why,)


def test_a_framework_that_cannot_measure_trains_all_the_same() -> None:
    inner = SimulatedTrainable(Simulation(PROBLEM), DeviceSettings(name="simulated"), PLAIN)
    names = (
        "sample_independent",
        "init",
        "count",
        "accumulate",
        "apply",
        "evaluate",
        "state",
        "load",
        "memory",
        "synchronize",
    )

    class OnlyTrains:
        pass

    outer = OnlyTrains()
    for name in names:
        setattr(outer, name, getattr(inner, name))
    ended, notebook = run(spec(16, 4, GradientSampling(every=4)), trainable=outer)
    assert ended.outcome == "completed"
    assert not notebook.samples
    assert ended.result.no_gradient_samples == (NoGradientSamples.UNSUPPORTED,)


def test_a_resumed_run_logs_the_same_samples() -> None:
    asked = spec(16, 4, GradientSampling(every=4))
    _, whole = run(asked)
    first = Notebook(stop_at=30)
    with pytest.raises(Interrupted):
        run(asked, first)
    _, second = run(asked, Notebook(saved=first.saved))
    assert [*first.samples, *second.samples] == whole.samples


def test_the_norms_are_those_of_mean_gradients_also_of_unequal_micro_batches() -> None:
    """The whole noise table in one step: then tr Σ and |G|² are exact."""
    problem = NoisyQuadratic(samples=60, dimensions=4)
    trainable = SimulatedTrainable(Simulation(problem), DeviceSettings(name="simulated"), PLAIN)
    trainable.init(0)
    data, sizes = training_data(problem), (7, 20, 33)
    starts = np.cumsum([0, *sizes])
    batches = [data.gather(np.arange(a, b)) for a, b in itertools.pairwise(starts)]
    asked = spec(60, 33, GradientSampling(every=1))
    sampler = GradientSampler(trainable, asked.gradients, asked.layout)
    sampler.accumulate(batches, sizes, 0)
    (row,) = sampler.rows()
    sample = row.gradients
    assert isinstance(sample, GradientSample)
    gradient = problem.curvature * trainable.theta
    means = [gradient + batch[0].mean(axis=0) for batch in batches]
    assert sample.micro_batch_sizes == pytest.approx(sizes)
    assert sample.squared_norms == pytest.approx([g @ g for g in means])
    assert sample.mean_squared_norm == pytest.approx(gradient @ gradient)
    norms = GradientNorms(sample.micro_batch_sizes, sample.squared_norms, sample.mean_squared_norm)
    within = sum(n * (g - gradient) @ (g - gradient) for n, g in zip(sizes, means, strict=True)) / 2
    assert unbiased_parts(norms)[0] == pytest.approx(within)
    a = (7 * means[0] + 20 * means[1]) / 27
    assert sample.spread == pytest.approx(math.sqrt(27 * 33 / 60) * np.abs(a - means[2]).sum())
    assert sample.agreement == pytest.approx(np.sign(a) @ means[2])
    assert sample.absolute_mean == pytest.approx(np.abs(gradient).sum())


def test_a_micro_batch_without_targets_is_no_sample_and_trains_on() -> None:
    trainable = SimulatedTrainable(Simulation(PROBLEM), DeviceSettings(name="simulated"), PLAIN)
    trainable.init(0)
    sampler = GradientSampler(
        trainable, GradientSampling(every=1), BatchLayout(global_batch_size=4, micro_batch_size=2)
    )
    data = training_data(PROBLEM)
    sampler.accumulate([data.gather(np.arange(2)), data.gather(np.arange(0))], (2.0, 0.0), 0)
    assert sampler.rows() == []
    assert not sampler.why_not
    assert float(trainable.apply(0.1).grad_norm) > 0


def test_over_many_runs_the_noise_and_the_gradient_are_those_of_the_problem() -> None:
    """Means of T and Q over runs against tr Σ and |G|² along the very same paths, lone micro-batches cut in two."""
    problem = NoisyQuadratic(samples=4096, dimensions=8)
    data = training_data(problem)
    trace, excess = [], []
    for seed in range(40):
        trainable = SimulatedTrainable(Simulation(problem), DeviceSettings(name="simulated"), PLAIN)
        trainable.init(seed)
        asked = spec(6, 6, GradientSampling(every=3, split_lone=True), steps=60)
        sampler, stream = GradientSampler(trainable, asked.gradients, asked.layout), SampleStream(data, seed)
        squares = []
        for step in range(asked.steps):
            if sampler.due(step):
                squares.append(np.sum((problem.curvature * trainable.theta) ** 2))
            one_step(trainable, stream, asked.layout, step, 0.3, sampler)
        samples = [row.gradients for row in sampler.rows() if row.gradients]
        parts = [
            unbiased_parts(GradientNorms(s.micro_batch_sizes, s.squared_norms, s.mean_squared_norm)) for s in samples
        ]
        trace.append(np.mean([t for t, _ in parts]))
        excess.append(np.mean([q for _, q in parts]) - np.mean(squares))
    error = np.std([trace, excess], axis=1, ddof=1) / math.sqrt(40)
    assert abs(np.mean(trace) - problem.curvature.sum()) < 3 * error[0]
    assert abs(np.mean(excess)) < 3 * error[1]
