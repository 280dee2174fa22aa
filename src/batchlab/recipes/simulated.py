"""Noisy quadratic problem on a simulated device with known answers; plain SGD, best batch 16.

A demonstration that takes seconds and needs no framework. The tests of batchlab compare their answers with the formulas
of the problem.
"""

from __future__ import annotations

from pathlib import Path

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.spec import Workload
from batchlab.core.task import Task
from batchlab.recipes import Recipe, summary
from batchlab.simulated.machine import Simulation, simulation
from batchlab.simulated.problem import NoisyQuadratic, held_out_data, training_data


def task(workload: Workload, cache_dir: Path) -> Task:
    """The simulation with the parameters in `workload.model`."""
    if workload.data.path or workload.data.valid_path:
        raise InputError("The simulated recipe makes its own data; leave data.path and data.valid_path unset.")
    if workload.sequence_length != 1:
        raise InputError("The simulated recipe counts in samples; leave sequence_length at 1.")
    simulated = simulation(workload.model)
    return Task(
        model=lambda: simulated,
        loss=NoisyQuadratic.losses,
        train=training_data(simulated.problem),
        valid=held_out_data(simulated.problem),
        unit=Unit.SAMPLES,
        framework="simulated",
        source=f"simulated noise ({simulated.problem.samples:,} × {simulated.problem.dimensions})",
    )


RECIPE = Recipe(
    name="simulated",
    summary=summary(__doc__),
    experiment={
        "unit": "samples",
        "sequence_length": 1,
        "model": Simulation().settings,
        "device": {"name": "simulated"},
        "optimizer": {
            "name": "sgd",
            "momentum": 0.0,
            "weight_decay": 0.0,
            "grad_clip": "off",
            "across_batch": "fixed",
        },
        "batch": {"global_batch_sizes": (4, 8, 16, 32, 64)},
        "sweep": {"search": "grid", "learning_rates": (0.4, 0.8, 1.4, 1.9)},
        "budget": {"token_budget": 4096},
        "evaluation": {"points": 8, "samples": 64},
    },
    task=task,
    model="Simulation",
)
