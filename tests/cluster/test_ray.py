"""Studies on a Ray cluster of two nodes, which the tests start on this machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.toy_runs import STUDY, TOY, carry_out, killed_driver, losses, toy
from tests.cluster.unavailable import require

from batchlab.core.errors import InputError
from batchlab.core.record import TrainResult
from batchlab.core.worker import WorkerCommand
from batchlab.engines.hosts import Host, Place, launched
from batchlab.engines.process_engine import ProcessEngine
from batchlab.engines.reach import reach

pytestmark = pytest.mark.cluster

PROGRAM = (sys.executable, TOY, "--launched-in", os.getcwd())

_SMALL = {"object_store_memory": 80 * 2**20}
"""The least that Ray takes, which nothing here uses."""


class RayCluster:
    """Two nodes with a core each, called n1 and n2, beside a head without any."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {**_SMALL, "num_cpus": 0, "include_dashboard": False}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self._nodes = {name: self._add(name) for name in ("n1", "n2")}
        self._cluster.wait_for_nodes()
        self.address: str = self._cluster.address

    def _add(self, name: str) -> Any:
        return self._cluster.add_node(num_cpus=1, resources={name: 1}, **_SMALL)

    def kill_node(self, name: str) -> None:
        """SIGKILL for everything on the node."""
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def start_node(self, name: str) -> None:
        """Add a node of that name."""
        self._nodes[name] = self._add(name)
        self._cluster.wait_for_nodes()

    def stop(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    """The cluster; what this process starts finds it."""
    require("" if importlib.util.find_spec("ray") else "not installed: ray (pip install ray)")
    before = dict(os.environ)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = RayCluster()
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield cluster
    finally:
        cluster.stop()
        os.environ.clear()
        os.environ.update(before)


def prefix(launch: str) -> tuple[str, ...]:
    return Place(launch=launch).prefix


def on_nodes(*nodes: str) -> list[Host]:
    """A host of one worker for each node."""
    return [Host(node, WorkerCommand(PROGRAM, prefix=prefix(f"ray --resource {node}=1")), 1, 1) for node in nodes]


def test_what_a_place_has_is_what_it_asked_for(ray_cluster: RayCluster, tmp_path: Path) -> None:
    [host] = reach(launched("ray", 2), tmp_path / "study", seconds=120.0)
    assert (host.cores, host.workers, host.cards) == (2, 2, ())


def test_no_node_has_what_is_asked_for(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did not answer within"):
        reach(launched("ray --resource moon=1", 1), tmp_path / "study", seconds=15.0)


def test_a_node_that_is_lost(ray_cluster: RayCluster, tmp_path: Path, expected: list[float | None]) -> None:
    with closing(ProcessEngine(tmp_path / "study", on_nodes("n1", "n2"), grace_seconds=5.0)) as engine:
        try:
            records = carry_out(engine, [toy(0, 0.4), toy(1, 0.4)], lambda: ray_cluster.kill_node("n1"))
        finally:
            ray_cluster.start_node("n1")
    assert losses(records) == expected
    assert sorted(record.attempts for record in records) == [1, 2]


def test_a_driver_that_is_lost(ray_cluster: RayCluster, tmp_path: Path, expected: list[float | None]) -> None:
    study, specs = tmp_path / "study", [toy(0, 0.4), toy(1, 0.4)]
    killed_driver(WorkerCommand(PROGRAM, prefix=prefix("ray")), study, specs)
    with closing(ProcessEngine(study, on_nodes("n1", "n2"), grace_seconds=5.0)) as engine:
        records = carry_out(engine, specs)
    assert losses(records) == expected
    assert all(isinstance(record.result, TrainResult) and record.result.resumed for record in records)


def test_a_study_over_ray_ends_as_on_one_machine(ray_cluster: RayCluster, project: Path) -> None:
    where = ("--launch", "ray", "--workers", "2", "--out", "ray")
    ended = subprocess.run([*STUDY, *where], cwd=project, check=False, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert (project / "ray" / "outcomes.csv").read_text() == (project / "here" / "outcomes.csv").read_text()
