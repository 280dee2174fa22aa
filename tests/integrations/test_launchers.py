"""A plan on two ranks, started by a launcher that is installed for `make test-integrations` only."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.study.torch_plan import write_plan

from batchlab.plan.distributed import distributed_config

pytestmark = pytest.mark.integration


def test_accelerate_starts_the_ranks_of_a_plan(tmp_path: Path) -> None:
    """Its line is one for CUDA; accelerate starts as many processes where there are no cards."""
    pytest.importorskip("accelerate")
    plan = write_plan(tmp_path)
    name, *words = shlex.split(distributed_config(1, 2, device="cuda", trains=True).launch["accelerate"])
    assert name == "accelerate"
    start = [sys.executable, "-m", "accelerate.commands.accelerate_cli", *words, "--device", "cpu", "--out", "launched"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        start, cwd=plan.parent, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    [record] = [json.loads(path.read_text()) for path in tmp_path.glob("launched/runs/*/record.json")]
    assert record["outcome"] == "completed"
    assert record["result"]["steps"] == 300


@pytest.mark.parametrize(("nodes", "devices"), [(1, 1), (1, 4), (2, 4)])
def test_accelerate_takes_the_line(nodes: int, devices: int) -> None:
    pytest.importorskip("accelerate")
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    words = shlex.split(distributed_config(nodes, devices, device="cuda", trains=True).launch["accelerate"])
    given = [word.replace("$NODE_RANK", "1").replace("$MASTER_ADDR", "node-0") for word in words[2:]]
    read, _, _ = _validate_launch_command(launch_command_parser().parse_args(given))
    assert (read.num_machines, read.num_processes) == (nodes, nodes * devices)
    assert (read.module, read.training_script) == (True, "batchlab")
    assert read.training_script_args == ["train", "training_plan.json"]
    assert read.multi_gpu == (nodes * devices > 1)
    if nodes > 1:
        assert (read.machine_rank, read.main_process_ip, read.main_process_port) == (1, "node-0", 29500)
