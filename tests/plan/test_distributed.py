"""Launch lines, and what is said of a batch that so many devices cannot share."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from batchlab.analysis.extrapolation import Target
from batchlab.analysis.findings import Findings
from batchlab.core.errors import InputError
from batchlab.plan import TrainingPlan, format_plan, make_plan
from batchlab.plan.distributed import distributed_config

SCHEMA = Path(__file__).parents[2] / "docs" / "training_plan.schema.json"


@pytest.mark.parametrize(("nodes", "devices"), [(1, 1), (1, 4), (2, 4)])
def test_torchrun_takes_its_line(nodes: int, devices: int) -> None:
    run = pytest.importorskip("torch.distributed.run")
    line = distributed_config(nodes, devices, device="cuda", trains=True).launch["torchrun"]
    read = run.parse_args(shlex.split(line)[1:])
    assert (read.module, read.training_script) == (True, "batchlab")
    assert read.training_script_args == ["train", "training_plan.json"]
    assert read.nproc_per_node == str(devices)
    assert read.standalone == (nodes == 1)
    assert read.nnodes == (str(nodes) if nodes > 1 else "1:1")


def test_srun_starts_one_launcher_per_node() -> None:
    words = shlex.split(distributed_config(2, 4, device="cuda", trains=True).launch["srun"])
    assert words[:4] == ["srun", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4"]
    assert words[4] == "torchrun"


def test_accelerate_counts_the_processes_of_all_nodes() -> None:
    words = shlex.split(distributed_config(2, 4, device="cuda", trains=True).launch["accelerate"])
    assert words[words.index("--num_processes") + 1] == "8"
    assert "accelerate" not in distributed_config(2, 4, device="cpu", trains=True).launch


def test_nodes_and_devices_share_the_batch(findings: Findings) -> None:
    plan = make_plan(findings, 4, nodes=2)
    assert plan.batch_configuration.data_parallel_size == 8
    assert (plan.distributed_config.nodes, plan.distributed_config.devices_per_node) == (2, 4)
    assert "--nodes=2" in format_plan(plan, "srun")


def test_a_batch_that_cannot_be_shared_is_answered_with_the_nearest_that_can(findings: Findings) -> None:
    with pytest.raises(InputError, match=r"The nearest that 128 can share is 128.*--batch-size 128"):
        make_plan(findings, devices=128)
    assert make_plan(findings, devices=128, target=Target(128)).batch_configuration.data_parallel_size == 128


def test_without_a_task_there_is_no_line(findings: Findings) -> None:
    plan = make_plan(findings).model_copy(update={"task": None})
    with pytest.raises(InputError, match="no task"):
        format_plan(plan, "torchrun")


def test_the_published_schema_is_that_of_the_plan() -> None:
    published: dict[str, Any] = json.loads(SCHEMA.read_text())
    assert published == TrainingPlan.model_json_schema(), "run: make schema"


def test_a_task_of_a_trainer_has_no_line() -> None:
    assert distributed_config(1, 2, device="cuda", trains=False).launch == {}
