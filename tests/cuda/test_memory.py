"""Limits and counters of a process on a card: what is counted against a limit, and what the limit leaves usable."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.cuda.card import CONTEXT, MEMORY, Card
from tests.study.stages.test_budget import planned

from batchlab.core.spec import DeviceSettings
from batchlab.engines.cards import visible_cards
from batchlab.torch_ import memory
from batchlab.torch_.cuda_allocator import MIB
from batchlab.torch_.framework import TorchFramework

CUDA = torch.device("cuda:0")


@pytest.fixture(autouse=True)
def _unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No baseline of an earlier test."""
    monkeypatch.setattr(memory, "_baseline", memory._Baseline())


def fits(mebibytes: int) -> bool:
    try:
        torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return False
    return True


@pytest.mark.parametrize("held", [0, 1, 8, 32])
def test_what_a_process_holds_counts_neither_against_the_limit_nor_in_the_peak(card: Card, held: int) -> None:
    kept = torch.empty(held * MIB, dtype=torch.uint8, device="cuda") if held else None
    bound = memory.bound(CUDA, 64 * MIB)
    assert bound.baseline_bytes == torch.cuda.memory_reserved()
    assert (bound.baseline_bytes > 0) == (kept is not None)
    assert fits(64)  # to the last segment of 2 MiB
    assert memory.read(CUDA).peak_bytes == 64 * MIB
    torch.cuda.empty_cache()
    assert not fits(66)


def test_other_programs_leave_less(card: Card) -> None:
    card.set(other=MEMORY - CONTEXT - 100 * MIB)
    bound = memory.bound(CUDA, None)
    assert bound.available_bytes == 100 * MIB
    assert not fits(102)
    assert fits(100)


def test_the_limit_is_the_free_memory_where_none_is_given(card: Card) -> None:
    available = memory.bound(CUDA, None).available_bytes
    assert available == MEMORY - CONTEXT


def test_what_auto_and_cuda_mean(card: Card) -> None:
    framework = TorchFramework()
    assert framework.resolve_device("auto") == framework.resolve_device("cuda") == "cuda"
    assert framework.resolve_device("cuda:0") == "cuda:0"
    framework.start(DeviceSettings(name="cuda"), 0)
    assert torch.cuda.current_device() == 0
    assert framework.environment(DeviceSettings(name="cuda")).device_memory_bytes == MEMORY


def test_cards_are_counted_without_starting_cuda(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("STANDIN_DEVICES", "8")
    assert visible_cards() == tuple("01234567")


def test_eight_cards_are_planned_eight_times_the_tokens(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    one = planned(tmp_path / "one", "cuda:0", 1)
    monkeypatch.setenv("STANDIN_DEVICES", "8")
    assert planned(tmp_path / "eight", "cuda", 8) == pytest.approx(8 * one, rel=0.02)
    assert planned(tmp_path / "named", "cuda:3", 1) == one
