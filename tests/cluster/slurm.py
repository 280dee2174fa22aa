"""A Slurm of two nodes on this machine, without systemd or control groups. Needs root, slurm-wlm and munge."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
from tests.cluster.until import until

_DAEMONS = ("munged", "slurmctld", "slurmd")

_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
AuthType=auth/munge
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
ReturnToService=2
SlurmdTimeout=10
KillWait=5
SlurmdParameters=config_overrides
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES PriorityTier=1 State=UP
PartitionName=urgent Nodes=n[1-2] PriorityTier=10 State=UP
"""


def missing() -> str:
    """Why no Slurm can be started here; empty where one can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    absent = [name for name in _DAEMONS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    return f"not installed: {', '.join(absent)} (apt install slurm-wlm munge)" if absent else ""


class Slurm:
    """The cluster, from `start` to `stop`. `environment`: what its commands need."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        path = f"{os.environ['PATH']}:/usr/sbin"
        self.environment = {**os.environ, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Start the daemons and wait until both nodes are idle."""
        for name in ("state", "spool-n1", "spool-n2"):
            (self._folder / name).mkdir(parents=True)
        text = _CONFIGURATION.format(host=socket.gethostname(), folder=self._folder)
        (self._folder / "slurm.conf").write_text(text)
        run = Path("/run/munge")
        run.mkdir(mode=0o755, exist_ok=True)
        shutil.chown(run, "munge", "munge")
        if not _answers(run / "munge.socket.2"):  # one that was killed leaves its socket
            self._daemons["munged"] = self._daemon(
                "su", "-s", "/bin/sh", "munge", "-c", "/usr/sbin/munged --foreground --force"
            )
            until(lambda: _answers(run / "munge.socket.2"), "munged did not start")
        self._daemons["slurmctld"] = self._daemon("slurmctld", "-D")
        for node in ("n1", "n2"):
            self.start_node(node)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until both nodes are up and have no jobs."""
        asked = ("sinfo", "-h", "-N", "-p", "main", "-o", "%t")
        until(lambda: self.run(*asked, check=False).split() == ["idle"] * 2, "nodes not idle")

    def start_node(self, node: str) -> None:
        """Start a node's daemon."""
        self._daemons[node] = self._daemon("slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """SIGKILL for a node's daemon and everything it has started, as if its power had gone."""
        self._daemons[node].kill()
        self._daemons.pop(node).wait()
        tasks = [process for process in psutil.process_iter() if _node_of(process) == node]
        steps = [parent for task in tasks if (parent := task.parent()) and parent.name() == "slurmstepd"]
        for process in (*steps, *tasks):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def run(self, *command: str, check: bool = True) -> str:
        """What a command prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def stop(self) -> None:
        """End everything."""
        self.run("scancel", "--user=root", check=False)
        for name in reversed(self._daemons):
            self._daemons[name].terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _daemon(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self._folder / f"{Path(command[0]).name}.out").open("ab")
        with log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def _node_of(process: psutil.Process) -> str | None:
    with suppress(psutil.Error):
        return process.environ().get("SLURMD_NODENAME")
    return None
