"""Asks places what they have before a study begins: do they answer, share its folder, and run the same versions?"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from batchlab.core.errors import InputError, shorten
from batchlab.engines.host_check import LOCK, MARK, HostFacts, facts_of_this_host
from batchlab.engines.hosts import Host, Place
from batchlab.engines.launcher import end_launcher
from batchlab.storage.atomic import shared_scratch
from batchlab.storage.lock import Lock

ANSWER_SECONDS = 25.0
"""How long a place may take to answer."""

_CHECK = "batchlab.engines.host_check"

_NO_PROGRAM = (126, 127)
"""Exit codes of env and of shells for a program that cannot be executed, or is not there."""

_SSH_FAILED = 255
"""ssh itself failed, and started nothing (man ssh, EXIT STATUS)."""


def reach(
    places: Sequence[Place], folder: Path, *, devices: int = 1, seconds: float = ANSWER_SECONDS
) -> tuple[Host, ...]:
    """The hosts behind these places, all asked at once.

    folder: the study's, which need not exist yet. devices: how many a run shares. Raises InputError where a place does
    not answer within so many seconds, does not see the folder or its locks, or has other versions than this machine or
    the first place.
    """
    with shared_scratch(folder) as shared, Lock(shared / LOCK), ThreadPoolExecutor(len(places)) as pool:
        found = list(pool.map(lambda place: _ask(place, shared, seconds), places))
    for place, facts in zip(places, found, strict=True):
        _require_shared(place, facts, folder)
    _require_same(places, found)
    return tuple(place.host(facts.cores, facts.cards, devices) for place, facts in zip(places, found, strict=True))


def _ask(place: Place, shared: Path, seconds: float) -> HostFacts:
    if not place.prefix:
        return facts_of_this_host()
    command = place.command(_CHECK)
    command = replace(command, program=(*command.program, "--folder", str(shared)))
    try:
        process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise InputError(f"{place.title} cannot be started: {error.strerror} ({command.prefix[0]}).") from None
    in_time = True
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        in_time = False
    finally:
        end_launcher(process)
    if not in_time:
        last = _last_line(process.communicate()[1])
        raise InputError(
            f"{place.title} did not answer within {seconds:g} seconds{f' ({last})' if last else ''}. Check that "
            f"`{shlex.join(command.prefix)}` starts a program without asking for anything, and that a node is free."
        )
    answers = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if not answers:
        _explain(place, process.returncode, _last_line(errors) or "it printed nothing")
    try:
        return HostFacts.model_validate_json(answers[-1])
    except ValueError:
        raise InputError(f"{place.title} has another version of batchlab; install this one there.") from None


def _last_line(errors: bytes) -> str:
    said = errors.decode(errors="replace").strip().splitlines()
    return shorten(said[-1].strip().removesuffix("."), 200) if said else ""


def _explain(place: Place, exit_code: int, last: str) -> NoReturn:
    """Raise InputError for a place whose program gave no answer, with the last line it wrote."""
    if place.ssh and exit_code == _SSH_FAILED:
        raise InputError(f"{place.title} is not reached: {last}. `ssh {place.ssh} true` must work without a question.")
    if exit_code in _NO_PROGRAM or "No module named" in last:
        raise InputError(
            f"batchlab could not be started on {place.title} (exit code {exit_code}): {last}. It was started as "
            f"{place.python}; `python` in hosts.toml names another one."
        )
    raise InputError(f"batchlab could not be started on {place.title} (exit code {exit_code}): {last}.")


def _require_shared(place: Place, facts: HostFacts, folder: Path) -> None:
    if not facts.sees_folder:
        raise InputError(
            f"{place.title} does not see {folder}. Hosts of one study share its folder: choose one that all of them "
            "see, with --out."
        )
    if not facts.sees_lock:
        raise InputError(
            f"{place.title} does not see locks that this machine holds in {folder}, so two processes could write one "
            "run. Choose a file system with shared locks, with --out."
        )


def _require_same(places: Sequence[Place], found: Sequence[HostFacts]) -> None:
    """Raise InputError where a host would compute something else."""
    code = facts_of_this_host().code
    for place, facts in zip(places, found, strict=True):
        if facts.code != code:
            raise InputError(
                f"{place.title} has another version of batchlab than this machine; install this one there."
            )
        for name, version in facts.versions.items():
            if version != found[0].versions.get(name):
                raise InputError(
                    f"{place.title} has {name} {version or 'not installed'}, {places[0].title} has "
                    f"{found[0].versions.get(name) or 'none'}: their results could differ. Install the same version."
                )
