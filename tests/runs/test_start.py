"""Where a run begins: afresh, at its own checkpoint, or where another run ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.errors import InputError
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TrainSpec, Workload, run_id
from batchlab.data.stream import SampleStream
from batchlab.runs.start import Start, keep_end, save, start
from batchlab.runs.step import one_step
from batchlab.simulated.machine import Simulation
from batchlab.simulated.problem import NoisyQuadratic, training_data
from batchlab.simulated.trainable import SimulatedTrainable
from batchlab.storage.run_folder import RunFolder

PROBLEM = NoisyQuadratic(samples=64, dimensions=4)
DATA = training_data(PROBLEM)
PLAIN = OptimizerSettings(config=OptimizerConfig(name="sgd", momentum=0.0, weight_decay=0.0, grad_clip=None))
LAYOUT = BatchLayout(global_batch_size=8, micro_batch_size=8)


def trainable() -> Any:
    return SimulatedTrainable(Simulation(problem=PROBLEM), DeviceSettings(name="simulated"), PLAIN)


def spec(seed: int = 0, begin: str | None = None, **model: float) -> TrainSpec:
    return TrainSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="simulated"), model=model),
        layout=LAYOUT,
        learning_rate=0.5,
        seed=seed,
        token_budget=80,
        evaluation_interval=80,
        start=begin,
    )


def folder(study: Path, asked: TrainSpec) -> Any:
    """The run's folder: what a run reads and writes here, without its progress."""
    kept = RunFolder(study, asked)
    assert kept.try_lock()
    kept.begin()
    kept.unlock()
    return kept


def begun(study: Path, asked: TrainSpec) -> tuple[Any, Start]:
    made = trainable()
    return made, start(made, SampleStream(DATA, seed=asked.seed), asked, folder(study, asked))


def trained(made: Any, reached: Start, steps: int) -> bytes:
    for step in range(reached.step, reached.step + steps):
        one_step(made, reached.stream, LAYOUT, step, 0.5)
    state: bytes = made.state()
    return state


def test_a_new_run_begins_with_its_seed_at_the_first_sample(tmp_path: Path) -> None:
    made, reached = begun(tmp_path, spec(seed=3))
    fresh = trainable()
    fresh.init(3)
    assert made.state() == fresh.state()
    assert (reached.step, reached.stream.first, reached.tally.resumed) == (0, 0, 0)


def test_a_resumed_run_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    undisturbed = trained(*begun(tmp_path / "one", spec()), steps=6)
    study = tmp_path / "other"
    made, reached = begun(study, spec())
    trained(made, reached, steps=2)
    save(made, folder(study, spec()), reached._replace(step=2))
    again, resumed = begun(study, spec())
    assert (resumed.step, resumed.tally.resumed) == (2, 1)
    assert trained(again, resumed, steps=4) == undisturbed


def ended(study: Path, parent: TrainSpec) -> bytes:
    made, reached = begun(study, parent)
    state = trained(made, reached, steps=4)
    keep_end(made, parent, folder(study, parent), samples=32)
    return state


@pytest.mark.parametrize(("seed", "first"), [(0, 32), (1, 0)])
def test_a_run_that_continues_another_takes_the_samples_that_follow(seed: int, first: int, tmp_path: Path) -> None:
    """With another seed the order is another, of which nothing was seen."""
    state = ended(tmp_path, spec())
    asked = spec(seed=seed, begin=run_id(spec()))
    child, continued = begun(tmp_path, asked)
    assert child.state() == state
    assert (continued.step, continued.stream.first) == (0, first)
    assert list(continued.stream.indices(0, 8)) == list(SampleStream(DATA, seed=seed).indices(first, first + 8))
    save(child, folder(tmp_path, asked), continued._replace(step=1))
    _, resumed = begun(tmp_path, asked)
    assert (resumed.step, resumed.stream.first) == (1, first), "its own checkpoint comes before the other run's end"


def test_a_run_without_a_beginning_is_refused(tmp_path: Path) -> None:
    other = spec(rounding=0.5)
    with pytest.raises(InputError, match="left no whole state"):
        begun(tmp_path, spec(begin=run_id(other)))
    ended(tmp_path, other)
    with pytest.raises(InputError, match="another model, data or task"):
        begun(tmp_path, spec(begin=run_id(other)))
