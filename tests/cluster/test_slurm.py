"""Studies on a Slurm of two nodes: workers started by srun, and the study itself as a job array."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.cluster.slurm import Slurm, missing
from tests.cluster.toy_runs import STUDY, TOY, carry_out, killed_driver, losses, toy
from tests.cluster.unavailable import require
from tests.cluster.until import until
from tests.study.torch_plan import write_plan

from batchlab.core.errors import InputError
from batchlab.core.record import TrainResult
from batchlab.core.worker import WorkerCommand
from batchlab.engines.hosts import Host, launched
from batchlab.engines.process_engine import ProcessEngine
from batchlab.engines.reach import reach
from batchlab.plan.distributed import distributed_config

pytestmark = pytest.mark.cluster

PROGRAM = (sys.executable, TOY, "--launched-in", os.getcwd())
SRUN = ("srun", "-Q", "-N1", "-n1", "-c1")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster; what this process starts finds it."""
    require(missing())
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    before = dict(os.environ)
    os.environ.update(cluster.environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        os.environ.clear()
        os.environ.update(before)


def on_nodes(*nodes: str) -> list[Host]:
    """A host of one worker for each node."""
    return [Host(node, WorkerCommand(PROGRAM, prefix=(*SRUN, "-w", node)), 1, 1) for node in nodes]


def nodes_of(study: Path) -> list[str]:
    lines = (study / "cache" / "starts.jsonl").read_text().splitlines()
    return [json.loads(line)["environment"]["SLURMD_NODENAME"] for line in lines]


def test_a_node_that_loses_its_power(slurm: Slurm, tmp_path: Path, expected: list[float | None]) -> None:
    study = tmp_path / "study"
    with closing(ProcessEngine(study, on_nodes("n1", "n2"), grace_seconds=5.0)) as engine:
        try:
            records = carry_out(engine, [toy(0, 0.4), toy(1, 0.4)], lambda: slurm.kill_node("n1"))
        finally:
            slurm.start_node("n1")
    assert losses(records) == expected
    assert sorted(record.attempts for record in records) == [1, 2]
    assert sorted(nodes_of(study)) == ["n1", "n2", "n2"]
    slurm.wait_until_idle()


def test_a_node_that_is_set_down(slurm: Slurm, tmp_path: Path, expected: list[float | None]) -> None:
    def put_down() -> None:
        slurm.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")

    with closing(ProcessEngine(tmp_path / "study", on_nodes("n1", "n2"), grace_seconds=5.0)) as engine:
        try:
            records = carry_out(engine, [toy(0, 0.4), toy(1, 0.4)], put_down)
        finally:
            slurm.run(
                "scontrol", "update", "NodeName=n1", "State=RESUME", check=False
            )  # it may have returned by itself
    assert losses(records) == expected
    slurm.wait_until_idle()


def test_a_driver_that_is_killed(slurm: Slurm, tmp_path: Path, expected: list[float | None]) -> None:
    study, specs = tmp_path / "study", [toy(0, 0.4), toy(1, 0.4)]
    killed_driver(WorkerCommand(PROGRAM, prefix=SRUN), study, specs)
    slurm.wait_until_idle()
    with closing(ProcessEngine(study, on_nodes("n1", "n2"), grace_seconds=5.0)) as engine:
        records = carry_out(engine, specs)
    assert losses(records) == expected
    assert all(isinstance(record.result, TrainResult) and record.result.resumed for record in records)


def test_a_study_over_srun_ends_as_on_one_machine(slurm: Slurm, project: Path) -> None:
    launch = ("--launch", " ".join(SRUN), "--workers", "2", "--out", "srun")
    subprocess.run([*STUDY, *launch], cwd=project, check=True, capture_output=True, timeout=240)
    assert (project / "srun" / "outcomes.csv").read_text() == (project / "here" / "outcomes.csv").read_text()


def test_a_job_array_shares_one_study_and_is_requeued(slurm: Slurm, project: Path) -> None:
    script = f"cd {project} && exec {' '.join(STUDY)} --out array"
    job = slurm.run("sbatch", "--parsable", "--array=0-1", "--requeue", "-n1", "-o", "/dev/null", "--wrap", script)
    first = f"{job.strip()}_0"
    until(lambda: list(project.glob("array/runs/*/record.json")), "nothing was recorded", 120.0)
    slurm.run("scontrol", "requeue", first)
    slurm.run("scontrol", "update", f"JobId={first}", "StartTime=now")
    until(lambda: not slurm.run("squeue", "-h"), "the array did not end", 200.0)
    assert (project / "array" / "outcomes.csv").read_text() == (project / "here" / "outcomes.csv").read_text()


def test_no_node_has_what_is_asked_for(slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"did not answer within 5 seconds \(srun: .*\)\. Check that"):
        reach(launched("srun -N1 -n1 -c64", 1), tmp_path / "study", seconds=5.0)
    until(lambda: not slurm.run("squeue", "-h"), "the request stayed in the queue")


def test_srun_knows_every_option_of_the_line(slurm: Slurm) -> None:
    """Its parser reads the options before `--help` ends it."""
    words = shlex.split(distributed_config(2, 4, device="cuda", trains=True).launch["srun"])
    options = words[: words.index("torchrun")]
    assert len(options) == 4
    assert "Usage: srun" in slurm.run(*options, "--help")
    with pytest.raises(AssertionError, match="unrecognized option"):
        slurm.run(*options, "--no-such-option", "--help")


def test_srun_starts_a_plan_on_two_nodes(slurm: Slurm, tmp_path: Path) -> None:
    """The plan's own line, but for the name of the first node, which nothing resolves on a cluster of one machine."""
    write_plan(tmp_path)
    line = distributed_config(2, 1, device="cpu", trains=True).launch["srun"]
    here = re.sub(r'"\$\(scontrol.*?\)"', "127.0.0.1", line)
    assert here != line
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = f"cd {tmp_path} && export PATH={path} && exec {here} --out launched"
    job = ("sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1", "-o", str(tmp_path / "log"), "--wrap", script)
    slurm.run(*job)
    until(lambda: not slurm.run("squeue", "-h"), "it did not end", 200.0)
    [record] = [json.loads(path.read_text()) for path in tmp_path.glob("launched/runs/*/record.json")]
    assert (record["outcome"], record["result"]["steps"]) == ("completed", 300)


def test_a_study_that_is_preempted_goes_on(slurm: Slurm, project: Path) -> None:
    script = f"cd {project} && exec {' '.join(STUDY)} --out preempted"
    job = slurm.run("sbatch", "--parsable", "--requeue", "-n1", "-c2", "-o", "/dev/null", "--wrap", script).strip()
    until(lambda: list(project.glob("preempted/runs/*/record.json")), "nothing was recorded", 120.0)
    urgent = ("sbatch", "--parsable", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")
    slurm.run(*urgent)
    until(lambda: "PD" in slurm.run("squeue", "-h", "-j", job, "-o", "%t"), "it was not preempted")
    until(lambda: "sleep" not in slurm.run("squeue", "-h", "-p", "urgent", "-o", "%o"), "urgent work did not end")
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    until(lambda: not slurm.run("squeue", "-h"), "it did not end", 200.0)
    assert (project / "preempted" / "outcomes.csv").read_text() == (project / "here" / "outcomes.csv").read_text()
