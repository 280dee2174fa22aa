"""Devices available to MLX, and the process-wide state that a run depends on."""

from __future__ import annotations

from importlib.metadata import version

import mlx.core as mx

from batchlab.core.errors import InputError
from batchlab.core.host import host_environment, processor
from batchlab.core.record import Environment
from batchlab.core.spec import DeviceSettings
from batchlab.mlx_ import memory
from batchlab.mlx_.random_state import seed_everything


def devices() -> list[str]:
    """Names of the available devices, best first."""
    return ["gpu", "cpu"] if mx.is_available(mx.gpu) else ["cpu"]


def resolve(name: str) -> str:
    """Resolve 'auto' to the best device. Raises InputError if the device does not exist."""
    available = devices()
    wanted = available[0] if name == "auto" else name
    if wanted not in available:
        raise InputError(f"MLX has no device {name!r} here. Possible: auto, {', '.join(available)}.")
    return wanted


def prepare(settings: DeviceSettings, seed: int) -> None:
    """Reset all process-wide state that a run depends on, whatever an earlier run changed.

    MLX has no setting for threads on a CPU. `tf32` computes as `fp32`.
    """
    mx.set_default_device(mx.gpu if resolve(settings.name) == "gpu" else mx.cpu)
    memory.release()
    seed_everything(seed)


def describe(settings: DeviceSettings) -> Environment:
    """Versions, device and threads for the record."""
    device = resolve(settings.name)
    info = mx.device_info() if device == "gpu" else {}
    return host_environment(
        f"mlx {version('mlx')}",
        threads=settings.threads,
        device=f"{info.get('device_name', processor())} (gpu)" if device == "gpu" else "",
        device_memory_bytes=memory.device_total(device),
    )
