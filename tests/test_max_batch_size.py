"""find_max_batch_size: where a task can be found, and the simulated device's known answer."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import batchlab
from batchlab.core.errors import InputError
from batchlab.simulated.machine import simulation
from batchlab.simulated.trainable import SimulatedTrainable


def some_task() -> batchlab.Task:
    return batchlab.task(model=dict, loss=min, train=[1], valid=[1])


def test_the_simulated_device_is_answered_exactly() -> None:
    machine = simulation({}).machine
    found = batchlab.find_max_batch_size("simulated", headroom="0", prove=True)
    assert (found.max_micro_batch_size, found.status) == (machine.max_micro_batch_size(), "proved")
    assert found.out_of_memory == 1
    assert len(found.points) <= 4
    assert found.layout(1000, devices=2).micro_batch_size == 500
    assert str(found).startswith("FITS")
    assert found.as_dict()["max_micro_batch_size"] == found.max_micro_batch_size


def test_a_limit_leaves_the_headroom_free() -> None:
    machine = simulation({}).machine
    found = batchlab.find_max_batch_size("simulated", memory_limit=machine.peak_bytes(100), headroom="10%")
    budget = round(0.9 * machine.peak_bytes(100))
    assert found.max_micro_batch_size == (budget - machine.fixed_bytes) // machine.bytes_per_sample
    assert found.budget_bytes == pytest.approx(budget, abs=1)


def test_a_limit_below_the_fixed_cost_says_what_is_needed() -> None:
    found = batchlab.find_max_batch_size("simulated", memory_limit=2**20)
    assert found.max_micro_batch_size is None
    assert "one sample needs at least" in str(found)


def test_no_more_than_the_data_is_looked_for() -> None:
    found = batchlab.find_max_batch_size("simulated", most=7)
    assert (found.max_micro_batch_size, found.reached_the_end, len(found.points)) == (7, True, 1)


def test_batches_whose_samples_influence_each_other_are_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a batch statistic or a contrastive loss makes them; a prediction runs no check."""
    monkeypatch.setattr(SimulatedTrainable, "sample_independent", False)
    found = batchlab.find_max_batch_size("simulated")
    assert found.grad_accum_steps == 1
    assert "batches are not split" in str(found)
    monkeypatch.undo()
    assert batchlab.find_max_batch_size("simulated").grad_accum_steps == 2


def test_a_task_that_no_module_holds_is_refused() -> None:
    with pytest.raises(InputError, match="keep it in a variable of your file"):
        batchlab.find_max_batch_size(some_task())


@pytest.mark.parametrize(
    ("name", "file", "sentence"),
    [("_batchlab_task_x", "x.py", "while it is imported"), ("prompt", None, "a notebook or a prompt")],
)
def test_where_a_task_cannot_be_imported_from_is_said(
    monkeypatch: pytest.MonkeyPatch, name: str, file: str | None, sentence: str
) -> None:
    module = ModuleType(name)
    module.__dict__.update(task=(task := some_task()), __file__=file)
    monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(InputError, match=sentence):
        batchlab.find_max_batch_size(task)
