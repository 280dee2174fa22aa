"""NVIDIA's management library (NVML), which comes with the driver: cards, found and read without starting CUDA.

Functions and constants as in nvml.h of CUDA 13. WSL2 has the library too; a machine without it has no NVIDIA card.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_SM_CLOCK = 1
_INSUFFICIENT_SIZE = 7
_TEXT = 96


@dataclass(frozen=True, slots=True)
class CardState:
    """A card at one moment; None where its driver does not tell.

    utilization: share of the last moments (up to a second) in which a kernel ran. processes: how many compute on it.
    """

    clock_mhz: int | None = None
    max_clock_mhz: int | None = None
    utilization: float | None = None
    processes: int | None = None


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def card_count() -> int:
    """NVIDIA cards of this machine, whatever CUDA_VISIBLE_DEVICES says."""
    count = ctypes.c_uint(0)
    with _library() as nvml:
        if nvml is None or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return 0
    return count.value


def driver_version() -> str:
    """Version of NVIDIA's driver, such as 580.65.06; empty where there is none."""
    text = ctypes.create_string_buffer(_TEXT)
    with _library() as nvml:
        if nvml is None or nvml.nvmlSystemGetDriverVersion(text, _TEXT):
            return ""
    return text.value.decode(errors="replace")


def card_state(uuid: str) -> CardState:
    """The card with this uuid (as CUDA writes it, without the prefix GPU-)."""
    card = ctypes.c_void_p()
    with _library() as nvml:
        if nvml is None or nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(card)):
            return CardState()
        busy = _Utilization()
        utilization = None if nvml.nvmlDeviceGetUtilizationRates(card, ctypes.byref(busy)) else busy.gpu / 100
        return CardState(
            clock_mhz=_clock(nvml.nvmlDeviceGetClockInfo, card),
            max_clock_mhz=_clock(nvml.nvmlDeviceGetMaxClockInfo, card),
            utilization=utilization,
            processes=_processes(nvml, card),
        )


def _clock(function: ctypes._NamedFuncPointer, card: ctypes.c_void_p) -> int | None:
    clock = ctypes.c_uint(0)
    return None if function(card, _SM_CLOCK, ctypes.byref(clock)) else clock.value


def _processes(nvml: ctypes.CDLL, card: ctypes.c_void_p) -> int | None:
    """Asked for none of them, NVML tells how many there are."""
    count = ctypes.c_uint(0)
    status = nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), None)
    return count.value if status in (0, _INSUFFICIENT_SIZE) else None


@contextmanager
def _library() -> Iterator[ctypes.CDLL | None]:
    """NVML, initialised; None where there is none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        yield None
        return
    if nvml.nvmlInit_v2():
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
