"""Start a script unchanged and record what only its own process knows: `python launcher.py SCRIPT ARGUMENTS…`.

The script is `__main__`, with its own arguments, folder and exit code, as if Python had started it. When the process
ends, its peak memory, device and versions are written to a file in the folder that BATCHLAB_RECORDS names. What it
logs to the Trainer of transformers or to W&B is recorded too. Uses the standard library only.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import json
import os
import platform
import resource
import runpy
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

RECORDS = "BATCHLAB_RECORDS"
"""The environment variable that names the folder of the records."""

WATCHED = {"transformers.trainer": "watch_trainer", "wandb.sdk.wandb_run": "watch_wandb"}
"""Module → function of logged_rows that sees to it that what the script logs there is recorded."""

FRAMEWORKS = ("torch", "jax", "mlx", "tensorflow", "transformers", "lightning", "numpy")


def main() -> None:
    """Run the script that the command line names; its exit code is that of this process."""
    del sys.argv[0]
    if not sys.argv:
        sys.exit("usage: launcher.py SCRIPT ARGUMENTS…")
    atexit.register(write_record)
    for name, hook in WATCHED.items():
        sys.meta_path.insert(0, _Watch(name, hook))
    if sys.argv[0] == "-m" and len(sys.argv) > 1:
        sys.path[0] = os.getcwd()
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    script = sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    _execute(script)


def _execute(script: str) -> None:
    """Execute a file as `__main__`. The module stays after its end, for functions that run at exit."""
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__, __cached__=None, __spec__=None)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def write_record() -> None:
    """Write what this process used: once, at its end."""
    folder = os.environ.get(RECORDS)
    if not folder or not os.path.isdir(folder):
        return
    values = {"pid": os.getpid(), **_used(), **_versions(), **_cuda()}
    Path(folder, f"process-{os.getpid()}.json").write_text(json.dumps(values), encoding="utf-8")


def _used() -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    scale = 1 if sys.platform == "darwin" else 1024
    return {"peak_bytes": used.ru_maxrss * scale, "cpu_seconds": used.ru_utime + used.ru_stime}


def _versions() -> dict[str, Any]:
    found = {}
    for name in FRAMEWORKS:
        if name in sys.modules:
            try:
                found[name] = str(getattr(sys.modules[name], "__version__", "") or version(name))
            except PackageNotFoundError:
                found[name] = ""
    return {"python": platform.python_version(), "versions": found}


def _cuda() -> dict[str, Any]:
    """Peaks of torch's allocator on every device that this process used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return {}
    devices = [
        {
            "name": torch.cuda.get_device_name(index),
            "total_bytes": torch.cuda.get_device_properties(index).total_memory,
            "allocated_bytes": torch.cuda.max_memory_allocated(index),
            "reserved_bytes": torch.cuda.max_memory_reserved(index),
        }
        for index in range(torch.cuda.device_count())
    ]
    return {"devices": [device for device in devices if device["reserved_bytes"]]}


class _Watch(importlib.abc.MetaPathFinder):
    """Calls a hook of logged_rows with a module once that is imported."""

    def __init__(self, name: str, hook: str) -> None:
        self._name, self._hook = name, hook

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            found.loader = _Loader(found.loader, self._hook)
        return found


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: importlib.abc.Loader, hook: str) -> None:
        self._inner, self._hook = inner, hook

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        from batchlab.integrations.script import logged_rows

        getattr(logged_rows, self._hook)(module)


if __name__ == "__main__":
    main()
