"""Limits, sizes that did not fit, and longer runs in words."""

from __future__ import annotations

import pytest

from batchlab.analysis.capacity.capacity import MemoryPoint
from batchlab.analysis.capacity.host_memory_fallback import PeakAboveDevice, SlowerThanSmaller
from batchlab.analysis.capacity.proof import Proof, Recheck
from batchlab.storage.decisions import LimitKind
from batchlab.words.capacity_reasons import describe_limit, describe_proof, probe_reason, retry_warning

GIB = 2**30


def test_every_limit_has_words() -> None:
    assert len({describe_limit(kind) for kind in LimitKind}) == len(LimitKind)
    assert describe_limit(LimitKind.DEVICE_MEMORY) == " (the device's own memory)"
    assert "shared with the system" in describe_limit(LimitKind.UNIFIED_MEMORY)
    assert describe_limit(None) == ""


def test_a_size_that_ran_in_the_hosts_memory_says_by_what_sign() -> None:
    peak = PeakAboveDevice(int(28.49 * GIB), int(15.99 * GIB))
    assert "28.49 GiB on a device with 15.99 GiB" in probe_reason(MemoryPoint(8, False, None, host_memory=peak))
    slow = MemoryPoint(16, False, None, host_memory=SlowerThanSmaller(20.0, 8))
    assert "20.0 times as long per sample as micro-batch 8" in probe_reason(slow)
    assert probe_reason(MemoryPoint(8, False, None, "no memory left")) == "no memory left"


@pytest.mark.parametrize(
    ("proof", "text"),
    [
        (Proof(True, 60, 1), "1 run of at least 60 whole steps ended within memory"),
        (Proof(True, 60, 3), "3 runs of at least 60 whole steps ended within memory"),
        (Proof(True, 50, 1, Recheck(8, 1, True)), "50 whole steps run for this plan ended within memory"),
        (
            Proof(False, 50, 1, Recheck(8, 1, False, "no memory left")),
            "50 whole steps run for this plan did not fit: no memory left",
        ),
    ],
)
def test_longer_runs_are_counted(proof: Proof, text: str) -> None:
    assert describe_proof(proof) == text


def test_a_retry_names_the_sizes() -> None:
    assert retry_warning("f", 16, 14).startswith("f ran out of memory at batch size 16; running it again at 14.")
    assert "nothing smaller is left" in retry_warning("f", 1, 0)
