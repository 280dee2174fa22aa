"""Machines behind ssh, which are this one: an sshd each, on a port of 127.0.0.1, with keys that nothing else knows."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
from tests.cluster.until import until

_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""

_CLIENT = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  HostKeyAlias {alias}
  IdentityFile {folder}/{key}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""

_SYSTEM = f"{os.environ['PATH']}:/usr/sbin"


def missing() -> str:
    """Why no sshd can be started here; empty where one can."""
    absent = [name for name in ("ssh", "sshd", "ssh-keygen") if shutil.which(name, path=_SYSTEM) is None]
    return f"not installed: {', '.join(absent)} (apt install openssh-server openssh-client)" if absent else ""


class Machines:
    """The machines, by name, from `start` to `stop`. `path`: where their own `ssh` is found first."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bin"
        self._folder = folder
        self._ports: dict[str, int] = {}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self.path.mkdir()
        for key in ("host_key", "user_key", "other_key"):
            made = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / key))
            subprocess.run(made, check=True)
        (folder / "known_hosts").write_text(f"batchlab-test {(folder / 'host_key.pub').read_text()}")
        ssh = shutil.which("ssh")
        (self.path / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {folder}/client "$@"\n')
        (self.path / "ssh").chmod(0o755)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd as root separates its privileges

    def add(self, name: str, *, known: bool = True, key: str = "user_key") -> None:
        """Name a machine, without starting it. known: the client knows its host key. key: with which it logs in."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._ports[name] = free.getsockname()[1]
        alias = "batchlab-test" if known else "batchlab-unknown"
        with (self._folder / "client").open("a") as file:
            file.write(_CLIENT.format(name=name, port=self._ports[name], alias=alias, key=key, folder=self._folder))

    def start(self, name: str) -> None:
        """Start its sshd, and wait until it listens."""
        file, port = self._folder / f"{name}.conf", self._ports[name]
        file.write_text(_SERVER.format(port=port, folder=self._folder))
        sshd = shutil.which("sshd", path=_SYSTEM)  # it wants to be called by its whole path
        log = (self._folder / f"{name}.log").open("ab")
        with log:
            self._servers[name] = subprocess.Popen(
                [str(sshd), "-D", "-e", "-f", str(file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(lambda: _listens(port), f"sshd did not start: {file}")

    def port(self, name: str) -> int:
        return self._ports[name]

    def kill(self, name: str) -> None:
        """SIGKILL for its sshd and every connection to it."""
        server = self._servers.pop(name)
        for process in (*_connections(server), psutil.Process(server.pid)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        server.wait()

    def freeze(self, name: str) -> None:
        """Let nothing answer any more, though the port is open."""
        self._servers[name].send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End everything."""
        for name in list(self._servers):
            self.kill(name)


def _connections(server: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes of sshd itself, not what was started through it."""
    children = psutil.Process(server.pid).children(recursive=True)
    return [child for child in children if child.name().startswith("sshd")]


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
