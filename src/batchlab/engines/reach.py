"""Asks places what they have before a study begins: do they answer, share its folder, and run the same versions?"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from batchlab.core.errors import InputError, shorten
from batchlab.engines.host_check import LOCK, MARK, HostFacts, facts_of_this_host
from batchlab.engines.hosts import Host, Place
from batchlab.storage.atomic import shared_scratch
from batchlab.storage.lock import Lock

ANSWER_SECONDS = 25.0
"""How long a place may take to answer."""

_CHECK = "batchlab.engines.host_check"


def reach(places: Sequence[Place], folder: Path, *, seconds: float = ANSWER_SECONDS) -> tuple[Host, ...]:
    """The hosts behind these places, all asked at once.

    folder: the study's, which need not exist yet. Raises InputError where a place does not answer within so many
    seconds, does not see the folder or its locks, or has other versions than this machine or the first place.
    """
    with shared_scratch(folder) as shared, Lock(shared / LOCK), ThreadPoolExecutor(len(places)) as pool:
        found = list(pool.map(lambda place: _ask(place, shared, seconds), places))
    for place, facts in zip(places, found, strict=True):
        _require_shared(place, facts, folder)
    _require_same(places, found)
    return tuple(place.host(facts.cores, facts.cards) for place, facts in zip(places, found, strict=True))


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
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{place.title} did not answer within {seconds:g} seconds. Check that `{shlex.join(command.prefix)}` "
            "starts a program without asking for anything, and that a node is free."
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    answers = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if not answers:
        said = errors.decode(errors="replace").strip().splitlines()
        last = shorten(said[-1].removesuffix("."), 200) if said else "it printed nothing"
        raise InputError(
            f"batchlab could not be started on {place.title} (exit code {process.returncode}): "
            f"{last}. It was started as {place.python}; `python` in hosts.toml names another one."
        )
    try:
        return HostFacts.model_validate_json(answers[-1])
    except ValueError:
        raise InputError(f"{place.title} has another version of batchlab; install this one there.") from None


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
