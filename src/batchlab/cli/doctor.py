"""What batchlab finds on this machine, one check at a time, with what to do where something useful is missing."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import psutil

from batchlab import __version__
from batchlab.core.errors import InputError, StorageFailed
from batchlab.core.format import format_bytes, format_plural
from batchlab.core.frameworks import SHIPPED, load_framework
from batchlab.core.protocols import Framework
from batchlab.core.spec import DeviceSettings
from batchlab.engines.hosts import Place
from batchlab.engines.reach import reach
from batchlab.engines.resources import usable_cores
from batchlab.storage.lock import require_locks
from batchlab.words.card_test import describe_card_check
from batchlab.words.hosts import host_line
from batchlab.words.mlx_test import describe_mlx_check

Status = Literal["ok", "warn", "missing", "fail"]

CARD_TEST_SECONDS = 180.0
CARD_TEST_FILE = Path("batchlab-doctor-gpu.json")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `remedy`: a command that adds what is missing."""

    status: Status
    details: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to check; `run` raises nothing."""

    name: str
    run: Callable[[], Finding]


def describe(name: str, found: Finding) -> str:
    """A check as one line."""
    return f"{found.status:<8} {name:<12} {found.details}" + (f"; run: {found.remedy}" if found.remedy else "")


def _versions() -> Finding:
    return Finding("ok", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")


def _cores() -> Finding:
    return Finding("ok", f"{format_plural(usable_cores(), 'core')} usable")


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    return Finding("ok", f"{format_bytes(memory.total)}, {format_bytes(memory.available)} free")


def _framework(name: str) -> Check:
    """A check for a framework, of which training needs one."""

    def run() -> Finding:
        try:
            framework = load_framework(name)
        except InputError:
            others = _usable()
            return Finding(
                "missing", f"optional ({SHIPPED[name].model})" if others else "needed for training", _install(name)
            )
        return Finding("ok", framework.environment(DeviceSettings(name="cpu")).framework)

    return Check(name, run)


def _usable() -> list[Framework]:
    """The frameworks that are installed and that models are written in."""
    found = []
    for name in NAMES:
        with suppress(InputError):
            found.append(load_framework(name))
    return found


NAMES = tuple(name for name, shipped in SHIPPED.items() if shipped.library)


def _device() -> Finding:
    """The device that a study uses by default."""
    frameworks = _usable()
    if not frameworks:
        return Finding("missing", f"needs {' or '.join(NAMES)}")
    framework = frameworks[0]
    device = framework.resolve_device("auto")
    seen = framework.environment(DeviceSettings(name=device))
    size = f", {format_bytes(seen.device_memory_bytes)}" if seen.device_memory_bytes else ""
    level = f", {seen.instruction_set}" if seen.instruction_set else ""
    return Finding("ok", f"{device} ({seen.device}{size}{level})")


def _install(extra: str) -> str:
    return f"pip install 'batchlab[{extra}]'"


def optional(package: str, purpose: str) -> Check:
    """A check for an optional package, whose name is also that of the extra that installs it."""

    def run() -> Finding:
        try:
            return Finding("ok", f"{version(package)} ({purpose})")
        except PackageNotFoundError:
            return Finding("missing", f"optional ({purpose})", _install(package))

    return Check(package, run)


OPTIONAL = (
    optional("tokenizers", "BPE vocabularies"),
    optional("datasets", "data.path=hf:NAME"),
    optional("tensorboard", "--track tensorboard"),
    optional("wandb", "--track wandb"),
    optional("ray", "--launch ray"),
)


def locks(out: Path) -> Check:
    """A check whether files can be locked where a study would be put."""

    def run() -> Finding:
        existing = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.is_dir())
        try:
            require_locks(existing)
        except (StorageFailed, OSError) as error:
            return Finding("warn", str(error))
        return Finding("ok", f"files in {existing} can be locked")

    return Check("locks", run)


def check_hosts(places: Sequence[Place], out: Path) -> Iterator[tuple[str, Finding]]:
    """What each host of a study has, or why it cannot take part; last, whether all of them compute the same.

    out: where studies will be put, which every host must see, with the locks held in it.
    """

    def ask(place: Place) -> Finding:
        try:
            [host] = reach((place,), out)
        except InputError as error:
            return Finding("fail", str(error))
        return Finding("ok", host_line(host.worker_cores, len(host.cards), host.workers))

    with ThreadPoolExecutor(len(places)) as pool:
        found = list(pool.map(ask, places))
    yield from zip((place.title for place in places), found, strict=True)
    if all(finding.status == "ok" for finding in found):
        try:
            reach(places, out)
        except InputError as error:
            yield "all of them", Finding("fail", str(error))


def checks(out: Path) -> tuple[Check, ...]:
    """Every check, in the order in which `batchlab doctor` prints it. `out`: where studies will be put."""
    return (
        Check("batchlab", _versions),
        Check("cores", _cores),
        Check("memory", _memory),
        locks(out),
        *map(_framework, NAMES),
        Check("device", _device),
        *OPTIONAL,
    )


@dataclass(frozen=True, slots=True)
class DeviceTest:
    """The checks of an accelerator: how the names of its devices begin, their module, and what they mean."""

    devices: str
    module: str
    describe: Callable[[Mapping[str, Any]], tuple[str, str]]

    @property
    def program(self) -> tuple[str, ...]:
        return (sys.executable, "-P", "-m", self.module)


DEVICE_TESTS = {
    "torch": DeviceTest("cuda", "batchlab.torch_.card_test", describe_card_check),
    "mlx": DeviceTest("gpu", "batchlab.mlx_.device_test", describe_mlx_check),
}


def device_test() -> DeviceTest:
    """The checks of the first accelerator that a framework can use here. Raises InputError where there is none."""
    best = []
    for name, test in DEVICE_TESTS.items():
        with suppress(InputError):
            device = load_framework(name).resolve_device("auto")
            if device.startswith(test.devices):
                return test
            best.append(f"the best device of {name} is {device}")
    found = "; ".join(best) or "no framework is installed"
    raise InputError(
        f"There is no CUDA card that torch can use here, and no GPU that MLX can use: {found}. `batchlab doctor` lists "
        "what was found."
    )


def card_checks(program: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """What each check of the card found, as soon as it has ended; last, what ended the process before its end.

    They run in a process of their own, which they may leave full or broken.
    """
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=CARD_TEST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        errors = f"TimeoutExpired: {CARD_TEST_SECONDS:.0f} s"
    for line in output.splitlines():
        if line.startswith('{"check":'):
            yield json.loads(line)
    if process.returncode:
        yield {"check": "process", "error": errors.strip().splitlines()[-1][:300] if errors.strip() else "killed"}


def check_card(file: Path, test: DeviceTest) -> bool:
    """Print one line per check of the first device, write all of them to `file`; whether nothing failed."""
    found = []
    passed = True
    for check in card_checks(test.program):
        status, details = test.describe(check)
        passed &= status != "fail"
        found.append({**check, "verdict": status})
        print(f"{status:<8} {check['check'].replace('_', ' '):<21} {details}", flush=True)
    file.write_text(json.dumps({"checks": found}, indent=1) + "\n")
    return passed
