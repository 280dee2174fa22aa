"""Whether the places of a study can carry it out: enough devices, and the same task and data on every host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment
from batchlab.core.format import format_plural
from batchlab.core.record import TaskInfo
from batchlab.engines.cards import visible_cards
from batchlab.engines.hosts import Host
from batchlab.runs.workload import hash_files

_SHARING = ("cuda", "cpu", "simulated")


def require_devices(experiment: Experiment, task_info: TaskInfo, hosts: Sequence[Host] = ()) -> None:
    """Raise InputError where no place, or not the one that measures, has as many devices as one run shall have, or the
    task's own trainer cannot use them. hosts: empty for this machine."""
    wanted, device = experiment.device.most_devices, task_info.device
    if wanted == 1:
        return
    if task_info.integration is not None:
        raise InputError(
            f"--devices {wanted} starts a process per device for tasks that batchlab trains itself, and this one is "
            "trained by its own program; use a task file, or a script whose command starts its processes itself, with "
            "command.devices."
        )
    if device not in _SHARING:
        raise InputError(f"--devices {wanted}: only cuda and cpu devices can share a run, not {device}.")
    if hosts:
        _require_on_hosts(wanted, device, hosts)
        return
    cards = len(visible_cards())
    if device == "cuda" and cards < wanted:
        raise InputError(
            f"--devices {wanted}: this machine shows {format_plural(cards, 'CUDA device')}; use at most {cards}."
        )


def _require_on_hosts(wanted: int, device: str, hosts: Sequence[Host]) -> None:
    enough = [host for host in hosts if host.holds(wanted, device)]
    if enough[:1] == [*hosts[:1]]:
        return
    counts = ", ".join(f"{host.name}: {len(host.cards)}" for host in hosts)
    if not enough:
        most = max(len(host.cards) for host in hosts)
        raise InputError(
            f"--devices {wanted}: a run has all its devices on one host, and none shows so many CUDA cards ({counts}); "
            + (f"use at most {most}." if most else "check CUDA there with `batchlab doctor`.")
        )
    raise InputError(
        f"--devices {wanted}: what is measured runs on the first host, and {hosts[0].name} shows too few CUDA devices "
        f"({counts}); put {enough[0].name} first."
    )


def require_same_task(hosts: Sequence[Host], begun: TaskInfo, inspect: Callable[[Host], TaskInfo]) -> None:
    """Raise InputError where one of these hosts finds other data or code than the study has.

    inspect: loads the task on a host and describes it; called for all hosts at once.
    """
    if not hosts:
        return
    with ThreadPoolExecutor(len(hosts)) as pool:
        found = list(pool.map(lambda host: _on(host, inspect), hosts))
    for host, task_info in zip(hosts, found, strict=True):
        if begun.data_digest != task_info.data_digest:
            raise InputError(
                f"{host.name} has other data than this study ({task_info.data_source}). Copy the files there, or put "
                "them where every host sees them; data that is drawn at random needs a fixed seed."
            )
        here = hash_files(map(Path, task_info.code))
        if other := [path for path, digest in task_info.code.items() if digest != here[path]]:
            raise InputError(f"{host.name} has another version of {', '.join(other)}; copy this one there.")


def _on(host: Host, inspect: Callable[[Host], TaskInfo]) -> TaskInfo:
    try:
        return inspect(host)
    except InputError as error:
        raise InputError(f"The task cannot be loaded on {host.name}: {error}") from None
