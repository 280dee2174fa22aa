"""Devices available to torch, and the process-wide flags that a run depends on."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from batchlab.core import nvml
from batchlab.core.errors import InputError
from batchlab.core.host import host_environment, processor
from batchlab.core.record import Environment
from batchlab.core.spec import DeviceSettings
from batchlab.torch_ import memory
from batchlab.torch_.random_state import seed_everything


def devices() -> list[str]:
    """Names of the available devices, best first."""
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if torch.backends.mps.is_available():
        names.append("mps")
    return [*names, "cpu"]


def resolve(name: str) -> str:
    """Resolve 'auto' to the best device. Raises InputError if the device does not exist.

    'cuda' is any of the visible cards, and stays so: the engine gives each worker one of them. 'cuda:3' is that card.
    """
    available = devices()
    any_card = ["cuda"] if torch.cuda.is_available() else []
    wanted = [*any_card, *available][0] if name == "auto" else name
    if wanted not in [*any_card, *available]:
        if _lacks_cuda(wanted):
            raise InputError(
                f"There is no device {name!r} here: torch {torch.__version__} is built without CUDA. "
                f"Possible: auto, {', '.join(available)}."
            )
        raise InputError(f"There is no device {name!r} here. Possible: auto, {', '.join(available)}.")
    return wanted


def torch_device(name: str) -> torch.device:
    """The device with this resolved name; for 'cuda' the first card that this process sees."""
    return torch.device("cuda:0" if name == "cuda" else name)


def _lacks_cuda(name: str) -> bool:
    return name.startswith("cuda") and torch.version.cuda is None and torch.version.hip is None


def in_use() -> bool:
    """Whether a process forked from this one could not use CUDA any more, because this one has.

    Also counting the devices may initialise the driver, which torch notices only in the fork: so one is made.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    if torch.version.cuda is None:
        return False
    child = os.fork()
    if not child:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    return os.waitpid(child, 0)[1] != 0


def prepare(settings: DeviceSettings, seed: int) -> torch.device:
    """Reset all process-wide state that a run depends on, whatever an earlier run changed.

    Precision: `fp32` computes float32 products in float32. `tf32` allows TF32 in matrix products and convolutions on
    CUDA and has no effect on a CPU or MPS. `bf16` is autocast with fp32 weights, which the Trainable applies. cuDNN
    selects kernels by heuristics instead of timing, which costs little and gives the same kernel each time.
    """
    device = torch_device(resolve(settings.name))
    torch.set_num_threads(settings.threads)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    tf32 = settings.precision == "tf32" and device.type == "cuda"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = False
    if "torch._dynamo" in sys.modules:  # if it was never imported, which takes a second, there is nothing to reset
        sys.modules["torch._dynamo"].reset()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    memory.release(device)
    seed_everything(seed)
    return device


def describe(settings: DeviceSettings) -> Environment:
    """Versions, device and threads for the record."""
    device = torch_device(resolve(settings.name))
    names = {"cuda": lambda: torch.cuda.get_device_name(device), "mps": lambda: f"{processor()} (Metal)"}
    return host_environment(
        f"torch {torch.__version__}",
        threads=torch.get_num_threads(),
        device=names.get(device.type, processor)(),
        instruction_set=torch.backends.cpu.get_cpu_capability(),
        device_memory_bytes=memory.device_total(device),
    ).model_copy(update=_card(device))


def _card(device: torch.device) -> dict[str, Any]:
    """What tells one card, and one installation, from another; nothing for other devices."""
    if device.type != "cuda":
        return {}
    card = torch.cuda.get_device_properties(device)
    uuid = str(card.uuid)
    return {
        "card_uuid": uuid,
        "driver": nvml.driver_version(),
        "cuda": torch.version.cuda or torch.version.hip or "",
        "compute_capability": f"{card.major}.{card.minor}",
        "max_clock_mhz": nvml.card_state(uuid).max_clock_mhz,
    }
