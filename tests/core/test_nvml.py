"""NVML where there is none, and where its functions are known; tests/cuda has the stand-in's library."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from batchlab.core import nvml
from batchlab.core.nvml import CardState, card_count, card_state, driver_version


def absent(name: str) -> Any:
    raise OSError(name)


def library(**functions: Any) -> Any:
    return lambda _: SimpleNamespace(nvmlInit_v2=lambda: 0, nvmlShutdown=lambda: 0, **functions)


def test_without_a_driver_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert (card_count(), driver_version(), card_state("1")) == (0, "", CardState())


def test_what_a_card_does_not_tell_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def clock(card: object, kind: int, found: Any) -> int:
        found._obj.value = 1410
        return 0

    def processes(card: object, count: Any, infos: object) -> int:
        count._obj.value = 2
        return nvml._INSUFFICIENT_SIZE

    handles: list[bytes] = []

    def handle(uuid: bytes, card: object) -> int:
        handles.append(uuid)
        return 0

    monkeypatch.setattr(
        ctypes,
        "CDLL",
        library(
            nvmlDeviceGetHandleByUUID=handle,
            nvmlDeviceGetUtilizationRates=lambda card, busy: 3,  # not supported
            nvmlDeviceGetClockInfo=lambda card, kind, found: 3,
            nvmlDeviceGetMaxClockInfo=clock,
            nvmlDeviceGetComputeRunningProcesses_v3=processes,
        ),
    )
    assert card_state("abc") == CardState(None, 1410, None, 2)
    assert handles == [b"GPU-abc"]
