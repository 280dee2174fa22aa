"""What sharded training gathers one by one, and the bytes of its shards in a real run of several processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.torch_.fully_sharded import LAYERS, Model
from torch import nn

from batchlab.analysis.capacity.sharded import Sharding, model_states
from batchlab.torch_.models import Decoder
from batchlab.torch_.sharding_units import sharding_units


def test_each_repeated_block_is_a_unit_and_what_is_shared_belongs_to_the_rest() -> None:
    *blocks, rest = sharding_units(Model())
    assert [unit.name for unit in blocks] == [f"blocks.{index}" for index in range(LAYERS)]
    assert [len(unit.parameters) for unit in blocks] == [6] * LAYERS
    assert (rest.name, [parameter.shape for parameter in rest.parameters]) == ("", [(6,), (13, 6)])
    assert [parameter.trained for parameter in rest.parameters] == [False, True]


def test_a_parameter_of_two_blocks_or_of_a_block_and_the_rest_is_gathered_with_the_rest() -> None:
    model = nn.Module()
    model.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    model.layers[1].weight = model.layers[0].weight
    model.tied = model.layers[2].weight
    units = {unit.name: len(unit.parameters) for unit in sharding_units(model)}
    assert units == {"layers.0": 1, "layers.1": 1, "layers.2": 1, "": 2}


def test_units_hold_every_parameter_once() -> None:
    model = Decoder(vocabulary=32, sequence_length=8, d_model=16, d_ff=32, layers=2, heads=2)
    units = sharding_units(model)
    counted = sum(torch.Size(p.shape).numel() for unit in units for p in unit.parameters)
    assert counted == sum(parameter.numel() for parameter in model.parameters())
    assert sum(bool(unit.name) for unit in units) == 2


def test_a_model_without_repeated_blocks_is_one_unit() -> None:
    assert [unit.name for unit in sharding_units(nn.Linear(3, 4))] == [""]


@pytest.mark.parametrize("devices", [2, 4])
def test_shards_of_a_real_run_have_the_bytes_of_the_formula(devices: int, tmp_path: Path) -> None:
    """Parameters, gradients and Adam's moments on every rank, to the byte, without the step counts."""
    script = Path(__file__).with_name("fully_sharded.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(devices), str(tmp_path / "rendezvous")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(devices)
    ]
    held = [json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in ranks]
    units = sharding_units(Model())
    moments = 2 * sum(p.numel() * p.element_size() for p in Model().parameters() if p.requires_grad)
    for rank, (parameters, gradients, optimizer) in enumerate(held):
        states = model_states(units, Sharding("fsdp", devices), moments, rank)
        assert (parameters, gradients, optimizer) == (states.parameters, states.gradients, states.optimizer)
