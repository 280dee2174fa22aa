"""What batchlab sees on this machine, one line each, with what to do where something useful is missing."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import psutil

from batchlab import __version__
from batchlab.core.errors import InputError
from batchlab.core.format import format_bytes
from batchlab.core.spec import DeviceSettings
from batchlab.engines.resources import usable_cores
from batchlab.runs.workload import load_framework

OPTIONAL = {
    "tokenizers": "BPE vocabularies, data.tokenizer and batchlab data prepare",
    "datasets": "data.path=hf:NAME",
    "tensorboard": "--track tensorboard",
    "wandb": "--track wandb",
}
"""Package, which is also the name of the extra that brings it, and what it is for."""


def doctor_lines() -> list[str]:
    """Versions, cores, memory, the device that would be used by default, and the optional packages."""
    return [*_machine(), *(_optional(package, purpose) for package, purpose in OPTIONAL.items())]


def _optional(package: str, purpose: str) -> str:
    try:
        return f"{package} {version(package)} ({purpose})"
    except PackageNotFoundError:
        return f"{package}: not installed ({purpose}); run: pip install 'batchlab[{package}]'"


def _machine() -> list[str]:
    memory = psutil.virtual_memory()
    lines = [
        f"batchlab {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"cores usable: {usable_cores()}; memory: {format_bytes(memory.total)}, free {format_bytes(memory.available)}",
    ]
    try:
        framework = load_framework("torch")
    except InputError:
        return [*lines, "torch: not installed, so nothing can be trained; run: pip install 'batchlab[torch]'"]
    device = framework.resolve_device("auto")
    seen = framework.environment(DeviceSettings(name=device))
    size = f", {format_bytes(seen.device_memory_bytes)}" if seen.device_memory_bytes else ""
    level = f", {seen.instruction_set}" if seen.instruction_set else ""
    return [*lines, seen.framework, f"device used by default: {device} ({seen.device}{size}{level})"]
